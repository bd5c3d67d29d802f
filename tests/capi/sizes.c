/* The layout of the public structures, a line each, for other languages' descriptions of them. */
#include <reprise.h>
#include <stdio.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define AT(type, member) printf(#type "." #member " %zu\n", offsetof(type, member))

int main(void) {
  SIZE(reprise_text);
  SIZE(reprise_scored);
  SIZE(reprise_hooks);
  SIZE(reprise_sampling);
  SIZE(reprise_request);
  SIZE(reprise_event);
  AT(reprise_hooks, event);
  AT(reprise_sampling, top_k);
  AT(reprise_sampling, stop);
  AT(reprise_sampling, form_text);
  AT(reprise_request, sampling);
  AT(reprise_request, deadline_s);
  AT(reprise_request, context);
  AT(reprise_event, text);
  AT(reprise_event, top_count);
  AT(reprise_event, total_s);
  return 0;
}
