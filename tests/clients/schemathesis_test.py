"""Schemathesis sends what docs/openapi.json allows and what it forbids, and compares the answers with the file."""

import re
import unittest

from support import PROGRAMS, ROOT, WithServer

# Not checked: that whatever the file allows is accepted. Some rules bind several fields (stream_options needs stream,
# n answers must fit the token budget) and have no form in JSON schema. Nor what a resource's life needs: there are none.
LEFT_OUT = "positive_data_acceptance,use_after_free,ensure_resource_availability,object_level_authorization"


class Schemathesis(WithServer):
    # Short answers, so that two minutes are many requests.
    flags = ("--api-key", "secret", "--context-length", "96", "--request-token-budget", "1024")

    def setUp(self):
        self.server.key = "secret"

    def test_the_server_does_what_its_description_says(self):
        for phases, examples in (("examples,coverage", 1), ("fuzzing", 40)):
            with self.subTest(phases=phases):
                said = self.run_client(
                    PROGRAMS / "schemathesis", "--config-file", ROOT / "tests/clients/schemathesis.toml", "run",
                    ROOT / "docs/openapi.json", "--url", self.server.url, "--header", "Authorization: Bearer secret",
                    "--phases", phases, "--max-examples", examples,
                    "--seed", 1, "--no-shrink", "--max-time", 100, "--request-timeout", 60, "--max-response-time", 60,
                    "--checks", "all",
                    "--exclude-checks", LEFT_OUT, "--continue-on-failure", "--suppress-health-check", "all",
                    "--warnings", "off")
                generated = re.search(r"(\d+) generated", said)
                self.assertTrue(generated and int(generated[1]) > 100, said[-3000:])
        # Still there, and nothing is left behind.
        self.assertEqual(self.server.counter("vllm:num_requests_running"), 0)
        self.assertEqual(self.server.counter("vllm:num_requests_waiting"), 0)
        self.assertEqual(self.server.counter("reprise:http_responses_total", status="500"), 0)


if __name__ == "__main__":
    unittest.main()
