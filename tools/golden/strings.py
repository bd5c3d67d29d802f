"""The deterministic strings of the tokenizer goldens: many scripts, emoji, control characters, whitespace, code, special tokens."""

import random
import unicodedata

SENTENCES = [
    "All human beings are born free and equal in dignity and rights.", "The quick brown fox jumps over the lazy dog.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Falsches Üben von Xylophonmusik quält jeden größeren Zwerg.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits. Voix ambiguë d’un cœur qui préfère les jattes de kiwis.",
    "Todos los seres humanos nacen libres e iguales. El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia. ¿Qué? ¡Sí!",
    "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Não há ação à toa.",
    "Tutti gli esseri umani nascono liberi ed eguali. Perché l’università è così lontana?",
    "Wszyscy ludzie rodzą się wolni i równi. Zażółć gęślą jaźń.", "Všichni lidé rodí se svobodní. Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Minden emberi lény szabadon születik. Árvíztűrő tükörfúrógép.", "Toate ființele umane se nasc libere și egale. Gheorghe, obezul, a reușit.",
    "Bütün insanlar hür doğarlar. Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul ışık.", "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.",
    "Все люди рождаются свободными и равными. Съешь же ещё этих мягких французских булок, да выпей чаю.", "Всі люди народжуються вільними. Жебракують філософи при ґанку церкви в Гадячі.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι. Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία.", "Բոլոր մարդիկ ծնվում են ազատ ու հավասար։", "ყველა ადამიანი იბადება თავისუფალი და თანასწორი.",
    "כל בני האדם נולדו בני חורין. דג סקרן שט בים מאוכזב. שָׁלוֹם", "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق. نص حكيم له سر قاطع. السَّلَامُ عَلَيْكُمْ",
    "تمام افراد بشر آزاد به دنیا می‌آیند. می‌خواهم ۱۲۳۴", "تمام انسان آزاد پیدا ہوئے ہیں۔", "सभी मनुष्यों को जन्मजात स्वतन्त्रता प्राप्त है। क्षत्रिय ज्ञान ॐ १२३",
    "সমস্ত মানুষ স্বাধীনভাবে জন্মগ্রহণ করে। ১২৩৪৫", "மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.", "ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులు.",
    "ಎಲ್ಲಾ ಮಾನವರೂ ಸ್ವತಂತ್ರರಾಗಿಯೇ ಜನಿಸಿದ್ದಾರೆ.", "മനുഷ്യരെല്ലാവരും തുല്യാവകാശങ്ങളോടെ ജനിച്ചിട്ടുള്ളവരാണ്.", "ਸਾਰੇ ਮਨੁੱਖ ਆਜ਼ਾਦ ਪੈਦਾ ਹੁੰਦੇ ਹਨ।", "સર્વ માનવો સ્વતંત્ર જન્મે છે.",
    "සියලු මනුෂ්‍යයෝ නිදහස්ව උපත ලබා ඇත.", "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน ๑๒๓ เป็นมนุษย์สุดประเสริฐเลิศคุณค่า", "ມະນຸດທຸກຄົນເກີດມາມີກຽດສັກສິ", "လူတိုင်းသည် တူညီလွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် မွေးဖွားလာသူများဖြစ်သည်။",
    "មនុស្សទាំងអស់កើតមកមានសេរីភាព។", "འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས།", "ሰብዓዊ ፍጡራን ሁሉ ነጻና እኩል ናቸው።", "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。", "人人生而自由，在尊嚴及權利上均各平等。「繁體中文」測試",
    "すべての人間は、生まれながらにして自由であり、かつ、平等である。いろはにほへと ちりぬるを", "カタカナのテスト、ｶﾀｶﾅ　ゔ゛が", "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 키스의 고유조건은",
    "Хүн бүр төрж мэндлэхэд эрх чөлөөтэй. ᠬᠦᠮᠦᠨ ᠪᠦᠷ", "ᏂᎦᏓ ᎠᏂᏴᏫ ᏂᎨᎫᏓᎸᎾ", "ᐃᓄᓕᒫᑦ ᐊᓂᖅᑎᕆᔪᓕᒫᑦ", "ⴰⵔ ⴷ ⵜⵜⵍⴰⵍⴰⵏ ⵎⵉⴷⴷⵏ", "𐌰𐌻𐌻𐌰𐌹 𐌼𐌰𐌽𐌽𐌰", "𓀀𓁐𓂀 𒀀𒁀𒂀", "𝒜𝓁𝓁 𝕙𝕦𝕞𝕒𝕟 𝖇𝖊𝖎𝖓𝖌𝖘 𝟏𝟐𝟛",
    "Ｆｕｌｌｗｉｄｔｈ　ｔｅｘｔ　１２３！", "ﬁne ﬂower ﬃ ǆ Ǆ ŉ ẞ ß ſ K Å Ω", "Ẽ̂ḡ ọ̀rọ̀ Yorùbá ń jẹ́", "Ċ ġ Ħħ Il-bnedmin kollha jitwieldu ħielsa.", "Öll börn fæðast frjáls. Þórður ærði. ÐÆÖ",
]

EMOJI = [
    "😀", "😂", "🥲", "❤️", "❤", "👍", "👍🏽", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🏴‍☠️", "🇩🇪", "🇯🇵", "🇺🇸🇫🇷", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "1️⃣", "#️⃣", "*️⃣", "☺️", "☺︎", "✈️", "🧑🏿‍🤝‍🧑🏻", "👩🏼‍❤️‍💋‍👨🏾",
    "🫠", "🫱🏻‍🫲🏿", "🧑‍🦽‍➡️", "🐻‍❄️", "🍌", "🎄", "🚀", "⌚", "©️", "™", "‼️", "🅰️", "㊗️", "🀄", "🃏", "\u200d", "\ufe0f", "🏻", "🇦", "🫩", "🦰",
]

CODE = [
    "def f(x: int) -> int:\n    return x * 2  # double\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n", "#include <vector>\nstd::vector<int> v{1, 2, 3};\n", "const f = async (x) => await fetch(`/api/${x}?q=1&r=2`);",
    "SELECT a.id, COUNT(*) FROM t AS a WHERE a.x != 'it''s' GROUP BY 1;", "<div class=\"row\"><a href='https://example.com/a?b=c#d'>link</a></div>", "{\"key\": [1, 2.5e-3, null, true], \"ü\": \"\\u00fc\\n\"}",
    "fn main() { let s: &'static str = \"hi\"; println!(\"{s:?}\"); }", "\\begin{equation} \\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2} \\end{equation}", "if [[ $# -lt 1 ]]; then echo \"usage: $0 FILE\" >&2; exit 2; fi",
    "a=b==c===d!=e<=f>=g<<h>>i&&j||k??l?.m::n->o=>p", "0xDEADBEEF 0b1010_1010 1_000_000 3.14f 1e-10 .5 5. -0", "\t\tif (x)\r\n\t\t\treturn;\r\n\r\n\r\n", "user.name+tag@example.co.uk C:\\dir\\file.txt ~/a/b/c.tar.gz ../x", "/* comment */ // line\n--- diff\n+++ b\n@@ -1,3 +1,4 @@\n",
    "class Foo(Bar):\n\n    \"\"\"Doc.\"\"\"\n\n    def __init__(self):\n        super().__init__()\n        self._x = [i for i in range(10) if i % 2 == 0]\n",
]

CONTRACTIONS = [
    "I'm", "you're", "he's", "she'll", "they've", "we'd", "don't", "can't", "I'M", "YOU'RE", "HE'S", "SHE'LL", "THEY'VE", "WE'D", "DON'T", "it’s", "I’m", "'tis", "'Twas", "rock'n'roll", "o'clock",
    "'s", "'S", "'ſ", "'t", "'re", "'rE", "'ve", "'VE", "'m", "'ll", "'Ll", "'lL", "'d", "''s", "'sx", "x's'", "y'all'd've", "l'été", "d'", "'", "''", "dogs'", "'90s", "5's", "é's", "日's", " 's", "\n's", "'ⅼⅼ", "'K",
]

SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>", "<gh_stars>", "<issue_start>", "<jupyter_code>", "<empty_output>",
    "<|object_ref_start|>", "<|vision_pad|>", "<|image_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>",
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜place▁holder▁no▁0｜>", "<｜place▁holder▁no▁799｜>", "<｜fim▁hole｜>", "<｜User｜>", "<｜Assistant｜>", "<|EOT|>", "<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>",
    "<|im_start", "|im_end|>", "<|IM_START|>", "< |im_end|>", "<|im_end |>", "<<|im_end|>>", "<|im_start|><|im_start|>", "<think", "/think>", "<｜User|>", "<｜User｜", "[INST]", "</s>", "<s>", "<unk>", "<|", "|>", "<｜", "｜>",
]

SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\u00a0", "\u3000", "\u2003", "\u2009", "\u200a", "\u202f", "\u205f", "\u1680", "\u2028", "\u2029", "\x0b", "\x0c", "\x85", "\u180e", "\u200b", "\u2060", "\ufeff", "\x1c", "\x1f"]
CONTROLS = [chr(c) for c in range(0x20)] + [chr(c) for c in range(0x7F, 0xA0)] + [chr(c) for c in (0xAD, 0x61C, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x202A, 0x202E, 0x2066, 0x2069, 0xFEFF, 0xFFF9, 0xFFFC, 0xFFFD, 0xFFFE, 0xFFFF, 0xE0001, 0xE0100, 0x1FFFF, 0x10FFFF, 0xFDD0, 0xE000, 0xF8FF, 0xF0000, 0x10FFFD)]
DIGITS = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "٠", "٣", "۴", "१", "৫", "๓", "０", "９", "²", "³", "¹", "½", "⅓", "Ⅳ", "ⅻ", "①", "⑳", "㊿", "一", "三", "十", "〇", "𝟘", "𝟿", "𐄇", "௰", "፲", "꘠", "🄀", "\u0bf0", "\u3021"]
PUNCT = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["…", "—", "–", "“", "”", "‘", "’", "«", "»", "„", "、", "。", "「", "」", "！", "？", "·", "•", "†", "‰", "€", "£", "¥", "₿", "±", "×", "÷", "≤", "≠", "∑", "∫", "√", "∞", "→", "⇒", "░", "█", "│", "♥", "♫", "✓", "®", "°", "¿", "¡", "§", "¶", "٪", "؟", "।", "׃", "⁂", "‿", "＿", "￥"]
MARKS = [chr(c) for c in list(range(0x300, 0x370)) + list(range(0x483, 0x48A)) + list(range(0x591, 0x5BE)) + list(range(0x64B, 0x660)) + [0x93C, 0x94D, 0x9BE, 0xBCD, 0xE31, 0xE48, 0xF71, 0x135F, 0x1AB0, 0x1DC0, 0x20D0, 0x20E3, 0x302A, 0x3099, 0x309A, 0xFE20, 0x1D165, 0x1D16D, 0xFE0F]]

EDGE = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r", "\r\n", "\t", "\t\t", " \n", "\n ", " \n ", "  \n  ", "\0", "\0\0", "a", " a", "a ", "  a", "a  ", "a  b", "a   b", "a\nb", "a\n\nb", "a \n b", "a\r\nb", "\n\n\na", " \t\n\r a", "a\u00a0b", "a \u00a0 b", "\u00a0a", "\u3000a", "\u2028a", "\u0085a",
    "é", "e\u0301", "ﬁ", "Å", "\u212b", "A\u030a", "각", "\u1100\u1161\u11a8", "\u0344", "\u0958", "\u2126", "\ufb1d", "\u1e9b\u0323", "q\u0307\u0323", "q\u0323\u0307", "\u0301", " \u0301", "\u0301a", "\U0001d15e", "\uf900", "\u2f800", "\U0002f800", "\U0001109a", "\u09c7\u09be",
    "Hello world", "Hello, world!", " Hello world ", "HELLO", "hello", "HeLLo", "camelCaseWord", "snake_case_word", "kebab-case", "123", "1234", "12345", "1234567890", " 123", "123abc", "abc123", "3.14", "1,234,567", "-5", "$100", "50%", "2024-01-31T12:34:56Z", "+1 (555) 010-9999",
    "...", "....", "......", "!!!", "?!", "---", "===", "***", "///", "\\\\\\", "\"quoted\"", "(paren)", "[x]", "{y}", "<z>", "a.b.c", "a-b", "a/b", "#tag", "@user", "!important", "?a", "'a", "\"a", ".net", "(a", "_a", "-a", "$a", "~a", "^a", "€a", "…a", "「a", "\n!a", " !a", "  !a", "!\n", "!\n\n", "!\r\n", " !\n a", "。\n", "a。\n\nb",
    "\ufeffBOM", "\ufffd", "\ufffe", "\uffff", "\U0010ffff", "\U000e0001", "\ue000", "\ufdd0", "\u0378", "\x7f", "\x80", "\x9f", "\xad", "\u200b", "\u200d", "\x04", "\x06", "\x13\x14\x16\x1d", "\U00040000", "\U00080000", "\U000c0000", "\U00100000", "Ġ", "Ċ", "ĠĠ", "Ġhello", "â", "ä½ł", "Ã©", "▁", "▁hello", "<0x0A>", "##ing", "</w>",
]


def any_scalar(r, low=0, high=0x10FFFF):
    while True:
        c = r.randint(low, high)
        if not 0xD800 <= c <= 0xDFFF:
            return chr(c)


def piece(s, r, longest=40):
    start = r.randrange(len(s))
    return s[start : start + r.randint(1, longest)]


def sentence(r):
    return piece(r.choice(SENTENCES), r, 56)


def emoji(r):
    return r.choice(["", " ", "a", "a "]) + r.choice(["", " ", ", "]).join(r.choice(EMOJI) for _ in range(r.randint(1, 5)))


def control(r):
    return "".join(r.choice([r.choice(CONTROLS), r.choice(CONTROLS), r.choice(SPACES), "ab", " x", "日", "1"]) for _ in range(r.randint(1, 9)))


def spaces(r):
    out = []
    for _ in range(r.randint(1, 5)):
        out.append(r.choice(SPACES[:9] if r.random() < 0.6 else SPACES) * r.choice([1, 1, 2, 3, 4, 7, 8, 16, 33]))
        if r.random() < 0.7:
            out.append(r.choice(["a", "word", "Été", "日本", "!", ".", "1", "12", "'s", "(", "x=1", "\u0301"]))
    return "".join(out)


def digits(r):
    if r.random() < 0.5:
        return r.choice(["", " ", "$", "x", "-", "no. "]) + f"{r.randrange(10 ** r.randint(1, 18)):{r.choice(['', ',', '_', '012', '.2f', '.3e', 'x', 'b' ])}}" + r.choice(["", " ", "%", "km", "th", ".", ",5"])
    return "".join(r.choice(DIGITS if r.random() < 0.8 else [" ", ".", ",", "a", "é"]) for _ in range(r.randint(1, 14)))


def contraction(r):
    return "".join(r.choice(CONTRACTIONS) + r.choice(["", " ", " ", ", ", "\n", "a"]) for _ in range(r.randint(1, 6)))


def code(r):
    return piece(r.choice(CODE), r, 72)


def marks(r):
    if r.random() < 0.4:
        return unicodedata.normalize(r.choice(["NFD", "NFKD", "NFC"]), sentence(r))
    return "".join(r.choice("aeioucnsAEIOUzqyx 日कا가ก") + "".join(r.choice(MARKS) for _ in range(r.choice([0, 1, 1, 2, 3]))) for _ in range(r.randint(1, 9)))


def hangul(r):
    return "".join(chr(r.randint(0x1100, 0x1112)) + chr(r.randint(0x1161, 0x1175)) + r.choice(["", chr(r.randint(0x11A7, 0x11C3))]) if r.random() < 0.5 else chr(r.randint(0xAC00, 0xD7A3)) for _ in range(r.randint(1, 7)))


def special(r):
    return "".join(r.choice([r.choice(SPECIAL), r.choice(SPECIAL), r.choice(["", " ", "\n", "hi", " hi", "user\n", "e\u0301", "1", "."])]) for _ in range(r.randint(1, 6)))


def punctuation(r):
    return "".join(r.choice(PUNCT) if r.random() < 0.75 else r.choice([" ", "\n", "a", "Ab", "é", "1", "日", "\r\n"]) for _ in range(r.randint(1, 14)))


def planes(r):
    kind = r.random()
    if kind < 0.3:
        return "".join(any_scalar(r) for _ in range(r.randint(1, 8)))
    if kind < 0.55:
        return "".join(any_scalar(r, 0, 0xFFFF) for _ in range(r.randint(1, 12)))
    if kind < 0.75:
        base = r.choice([r.randrange(0, 0x3000, 0x80), r.randrange(0, 0x20000, 0x80)])
        return "".join(any_scalar(r, base, base + 0x7F) if not 0xD780 <= base <= 0xDFFF else "x" for _ in range(r.randint(1, 12)))
    if kind < 0.9:
        return "".join(any_scalar(r, 0x10000, 0x1FFFF) for _ in range(r.randint(1, 8)))
    return r.choice(["", " "]).join(any_scalar(r, *r.choice([(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x52F), (0x4E00, 0x9FFF), (0x20000, 0x3FFFF), (0xE0000, 0xE01EF), (0xF0000, 0x10FFFF)])) for _ in range(r.randint(1, 12)))


def ascii_noise(r):
    return "".join(chr(r.randint(0x20, 0x7E)) if r.random() < 0.9 else r.choice("\n\t\r") for _ in range(r.randint(1, 32)))


KINDS = [(sentence, 4500), (emoji, 900), (control, 900), (spaces, 2200), (digits, 1500), (contraction, 900), (code, 2200), (marks, 1500), (hangul, 300), (special, 1800), (punctuation, 1200), (planes, 1800), (ascii_noise, 900)]


def strings():
    """Every string once, in a fixed order: the hand-written ones first."""
    r = random.Random(20250701)
    seen, out = set(), []

    def add(s):
        if s not in seen:
            s.encode("utf-8")  # valid scalar values only
            seen.add(s)
            out.append(s)

    for s in EDGE + CONTRACTIONS + SPECIAL + SENTENCES + CODE + EMOJI:
        add(s)
    for unit, n in [("a", 3000), (" ", 3000), ("\n", 2000), ("\t", 999), ("ab", 700), ("1", 1000), ("é", 500), ("日", 400), ("👍🏽", 120), ("!", 1500), ("= ", 500), ("\r\n", 300), ("e\u0301", 300), ("\u0301", 400), (" \u00a0", 200), ("<|im_end|>", 50), ("'s", 200), ("ｱ", 200)]:
        for k in (n, n - 1, 17):
            add(unit * k)
            add("x" + unit * k)
            add(unit * k + "x")
    for n in range(1, 70):
        add(" " * n + "end")
        add("begin" + " " * n)
        add("\n" * n + "  x")
    for make, count in KINDS:
        for _ in range(count):
            add(make(r))
    makers = [k for k, _ in KINDS]
    while len(out) < 21000:
        add(r.choice(["", " ", "\n"]).join(r.choice(makers)(r)[:24] for _ in range(r.randint(2, 3))))
    return out
