/* Grammars: what they allow, by texts and by masks over the bundled vocabulary; what is refused;
 * and answers that keep to one. */
#include "engine/base/mem.h"
#include "engine/run/engine.h"
#include "engine/run/sampling/sampler.h"
#include "engine/text/grammar/matcher.h"
#include "engine/text/grammar/vocabulary.h"
#include "tests/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static struct weight_file *file;
static struct tokenizer *tokenizer;
static struct grammar_vocabulary *vocabulary;
static const int stops[] = {0};
static int n_vocab;

static void set_up(void)
{
    struct error e = {0};
    char path[4096];

    snprintf(path, sizeof path, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    ck_assert_int_eq(weight_file_open(&file, path, true, &e), 0);
    ck_assert_int_eq(tokenizer_load(&tokenizer, file, &e), 0);
    n_vocab = tokenizer_size(tokenizer);
    ck_assert_int_eq(grammar_vocabulary_new(&vocabulary, tokenizer, n_vocab, stops, 1, &e), 0);
}

static void tear_down(void)
{
    grammar_vocabulary_free(vocabulary);
    tokenizer_free(tokenizer);
    weight_file_close(file);
}

static struct matcher *matcher_of(const char *text)
{
    struct grammar *g;
    struct matcher *m;
    struct error e = {0};

    ck_assert_msg(grammar_from_gbnf(&g, text, strlen(text), &e) == 0, "%s: %s", text, e.text);
    ck_assert_int_eq(matcher_new(&m, g, vocabulary, &e), 0);
    grammar_free(g);
    return m;
}

START_TEST(texts_are_told_apart)
{
    static const struct {
        const char *grammar, *yes[6], *begins[6], *no[6];
    } rows[] = {
        {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "ye"}, {"yess", "maybe", " yes"}},
        {"root ::= [a-c]+ [^0-9]?",
         {"a", "abc", "ab!", "c\xc3\xa9"},
         {"", "ab\xc3"},
         {"1", "a1", "ab!!"}},
        {"root ::= \"a\"{2,4}", {"aa", "aaa", "aaaa"}, {"a"}, {"aaaaa", "b"}},
        {"root ::= (\"x\" | \"yz\"){2}", {"xx", "xyz", "yzyz"}, {"x", "y", "yz"}, {"xxx", "z"}},
        {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "((("}, {"(()))", "a"}},
        /* comments, lines, a rule over several of them */
        {"# all\nroot ::= ( one |\n  two ) # it\none ::= \"1\"\n\ntwo ::= \"2\" \"\\n\"\n",
         {"1", "2\n"},
         {"2"},
         {"3", "1\n"}},
        {"root ::= [\\u00e4-\\u00fc\\x41] | \"\\U0001F600\"",
         {"\xc3\xa4", "A", "\xf0\x9f\x98\x80"},
         {"\xc3", "\xf0\x9f"},
         {"\xc3\xbd", "B", "\xf0\x9f\x98\x81"}},
        {"root ::= .", {"x", "\xe2\x82\xac", "\n"}, {"\xe2\x82"}, {"xx", "\xff", "\xed\xa0\x80"}},
        /* right recursion and a list of lists */
        {"root ::= item root | item\nitem ::= \"[\" (item (\",\" item)*)? \"]\"",
         {"[]", "[][]", "[[],[[]]]"},
         {"[[],"},
         {"[,]", "]"}},
        {"root ::= \"a\"{0,3} \"b\"{2,}", {"bb", "aaabbb"}, {"aaa", "b"}, {"aaaabb", "ba"}},
    };
    const char *const *p;
    struct matcher *m = matcher_of(rows[_i].grammar);

    for (p = rows[_i].yes; *p && p < rows[_i].yes + 6; p++) {
        int c = matcher_accept_text(m, matcher_start(m), *p, strlen(*p));

        ck_assert_msg(c != MATCHER_DEAD && matcher_complete(m, c), "%s: '%s'", rows[_i].grammar,
                      *p);
    }
    for (p = rows[_i].begins; *p && p < rows[_i].begins + 6; p++) {
        int c = matcher_accept_text(m, matcher_start(m), *p, strlen(*p));

        ck_assert_msg(c != MATCHER_DEAD && (!matcher_complete(m, c) || _i == 4), "%s: '%s'",
                      rows[_i].grammar, *p);
    }
    for (p = rows[_i].no; *p && p < rows[_i].no + 6; p++)
        ck_assert_msg(matcher_accept_text(m, matcher_start(m), *p, strlen(*p)) == MATCHER_DEAD,
                      "%s: '%s'", rows[_i].grammar, *p);
    matcher_free(m);
}
END_TEST

/* A mask holds what may come, token by token. */
static void check_mask(struct matcher *m, int cursor)
{
    const uint32_t *mask = matcher_mask(m, cursor);
    char text[256];

    ck_assert_ptr_nonnull(mask);
    for (int id = 0; id < n_vocab; id++) {
        size_t n = tokenizer_token_text(tokenizer, id, text, sizeof text);
        bool may = id == stops[0] ? matcher_complete(m, cursor)
                                  : n && matcher_accept_text(m, cursor, text, n) != MATCHER_DEAD;

        ck_assert_msg(may == (mask[id >> 5] >> (id & 31) & 1), "token %d '%.*s'", id, (int)n, text);
        ck_assert_int_eq(matcher_accept(m, cursor, id) != MATCHER_DEAD, may);
    }
}

static const char json[] =
    "root ::= value\n"
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
    "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-f]{4}))* "
    "\"\\\"\" ws\n"
    "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]+)? ws\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

START_TEST(masks_hold_what_may_come)
{
    static const char *const after[] = {"", "{\"a", "[1", "[tr", "{\"k\": [\"\\", "{}", "[\n  "};
    struct matcher *m = matcher_of(json);

    for (size_t i = 0; i < COUNT(after); i++) {
        int c = matcher_accept_text(m, matcher_start(m), after[i], strlen(after[i]));

        ck_assert_int_ne(c, MATCHER_DEAD);
        check_mask(m, c);
        /* the kept one is the same */
        check_mask(m, c);
    }
    matcher_free(m);
}
END_TEST

/* Whatever is drawn is allowed, the end comes only where the grammar is complete, and forgetting
 * states changes nothing. */
START_TEST(drawn_texts_keep_to_it)
{
    struct sampling v = sampling_default();
    struct matcher *m = matcher_of("root ::= (\"ab\" [a-z]{300,} | [0-9]{1,5} \"\\n\")*");
    float *logits = mem_alloc((size_t)n_vocab, sizeof *logits);
    struct sampler_draw draw;
    struct sampler s;
    struct error e;
    int c = matcher_start(m);
    uint32_t lcg = 7;

    v.top_k = 0;
    v.temperature = 3;
    ck_assert_int_eq(sampler_init(&s, n_vocab, &v, &e), 0);
    for (int i = 0; i < 400; i++) {
        const uint32_t *mask;
        int id;

        c = matcher_settle(m, c);
        ck_assert_ptr_nonnull(mask = matcher_mask(m, c));
        for (int k = 0; k < n_vocab; k++) {
            lcg = lcg * 1664525u + 1013904223u;
            logits[k] = (float)(lcg >> 20) / 512.0f;
        }
        sampler_mask(&s, mask);
        id = sampler_sample(&s, logits, NULL, 0, &draw);
        ck_assert(mask[id >> 5] >> (id & 31) & 1);
        ck_assert(draw.forbidden > 0.0f && draw.forbidden <= 1.0f);
        c = id == stops[0] ? matcher_start(m) : matcher_accept(m, c, id);
        ck_assert_int_ne(c, MATCHER_DEAD);
    }
    sampler_release(&s);
    matcher_free(m);
    mem_free(logits);
}
END_TEST

/* Nothing that is allowed has a logit worth anything: it is taken all the same. */
START_TEST(it_fails_closed)
{
    struct sampling v = sampling_default();
    float logits[70];
    uint32_t mask[3] = {0, 1u << 5, 0};
    struct sampler_draw draw;
    struct sampler s;
    struct error e;

    ck_assert_int_eq(sampler_init(&s, 70, &v, &e), 0);
    for (int greedy = 0; greedy < 2; greedy++) {
        v.temperature = greedy ? 0 : 1;
        sampler_set(&s, &v);
        for (int i = 0; i < 70; i++)
            logits[i] = i == 37 ? -INFINITY : 3.0f;
        sampler_mask(&s, mask);
        ck_assert_int_eq(sampler_sample(&s, logits, NULL, 0, &draw), 37);
        ck_assert_float_eq_tol(draw.forbidden, 1.0f, 1e-6);
        logits[37] = 3.0f;
        sampler_mask(&s, mask);
        ck_assert_int_eq(sampler_sample(&s, logits, NULL, 0, &draw), 37);
        ck_assert_float_eq_tol(draw.forbidden, 69.0f / 70.0f, 1e-6);
        /* it is for one token */
        ck_assert_int_ne(sampler_sample(&s, logits, NULL, 0, &draw), 37);
        ck_assert(draw.forbidden == 0.0f);
    }
    sampler_release(&s);
}
END_TEST

START_TEST(wrong_grammars_are_refused)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "no rule named root"},
        {"rot ::= \"a\"", "no rule named root"},
        {"root ::= \"a\n\"", "line 1"},
        {"root ::= a\na ::= b", "line 2: there is no rule 'b'"},
        {"root ::= \"a\"\nroot ::= \"b\"", "said already"},
        {"root ::= (\"a\"", "not closed"},
        {"root ::= \"a\")", "closes nothing"},
        {"root ::= [z-a]", "ends before it begins"},
        {"root ::= \"\\q\"", "unknown escape"},
        {"root ::= \"\\x4\"", "hexadecimal"},
        {"root ::= \"a\"{3,2}", "{N,M}"},
        {"root ::= \"a\"{99999999999}", "too often"},
        {"root ::= \"a\"{400000} \"b\"{400000}", "too large"},
        {"root ::= root \"a\" | \"a\"", "'root' begins with itself"},
        {"root ::= a\na ::= b? c\nb ::= \"x\"\nc ::= a \"y\" | \"z\"", "begins with itself"},
        {"root ::= \"a\" root", "never ends"},
        {"root ::= [^\\x00-\\U0010ffff]", "never ends"},
        {"root ::= <token>", "tokens cannot be named"},
        {"root = \"a\"", "NAME ::="},
        {"root ::= \"\xff\"", "not UTF-8"},
    };
    struct grammar *g;
    struct error e;

    for (size_t i = 0; i < COUNT(rows); i++) {
        e = (struct error){0};
        ck_assert_msg(grammar_from_gbnf(&g, rows[i].text, strlen(rows[i].text), &e) == ERR_INPUT,
                      "%s: %d", rows[i].text, e.code);
        ck_assert_msg(strstr(e.text, rows[i].says) != NULL, "%s: %s", rows[i].text, e.text);
        ck_assert_ptr_null(g);
    }
}
END_TEST

static const struct {
    const char *schema, *yes[5], *no[5];
} schemas[] = {
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": "
     "{\"type\": "
     "[\"string\", \"null\"]}}, \"required\": [\"a\"], \"additionalProperties\": false}",
     {"{\"a\":1}", "{ \"a\": -12, \"b\": null }", "{\n  \"a\": 0,\n  \"b\": \"x\"\n}"},
     {"{}", "{\"b\"", "{\"a\":01", "{\"a\":1,\"c\"", "[1]"}},
    {"{\"type\": \"object\", \"properties\": {\"ab\": {\"type\": \"null\"}}, "
     "\"additionalProperties\": {\"type\": \"boolean\"}}",
     {"{}", "{\"ab\": null}", "{\"a\":true,\"abc\":false}", "{\"ab\":null, \"b\":true}"},
     {"{\"ab\":true", "{\"a\":null", "{\"ab\":null,\"ab\":"}},
    {"{\"type\": \"array\", \"items\": {\"type\": \"boolean\"}, \"minItems\": 1, \"maxItems\": "
     "2}",
     {"[true]", "[true, false]"},
     {"[]", "[true,true,", "[1"}},
    {"{\"type\": \"array\", \"prefixItems\": [{\"const\": 1}, {\"enum\": [\"x\", null]}], "
     "\"items\": false}",
     {"[]", "[1]", "[1,null]", "[1,\"x\"]"},
     {"[2", "[1,2", "[1,null,"}},
    {"{\"$ref\": \"#/$defs/t\", \"$defs\": {\"t\": {\"type\": \"array\", \"items\": {\"$ref\": "
     "\"#/$defs/t\"}}}}",
     {"[]", "[[],[[]]]"},
     {"[1", "[[]}"}},
    {"{\"type\": \"integer\", \"minimum\": -12, \"exclusiveMaximum\": 105}",
     {"-12", "0", "7", "104", "-1"},
     {"-13", "105", "00", "200", "1.5"}},
    {"{\"type\": \"integer\", \"multipleOf\": 7}",
     {"0", "7", "-14", "1001", "-0"},
     {"07", "1.0", "x"}},
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
     {"\"ab\"", "\"\xc3\xa4\\nb\""},
     {"\"a\"", "\"abcd", "\"\n"}},
    {"{\"anyOf\": [{\"type\": \"number\"}, {\"const\": {\"k\": [1]}}]}",
     {"1", "-0.5e+10", "{\"k\":[1]}", "{ \"k\": [\n 1 ] }"},
     {"1.e", "{\"k\":[2", "+1"}},
    {"{\"type\": \"integer\", \"multipleOf\": 7, \"minimum\": -8, \"maximum\": 15}",
     {"-7", "0", "7", "14"},
     {"-8", "21", "70", "1.", "-14"}},
    {"{\"type\": \"number\", \"multipleOf\": 0.01}",
     {"0", "-1.25", "1000.5"},
     {"0.125", "1e2", "01"}},
    {"{\"type\": \"string\", \"pattern\": \"^[A-Z]{2,3}-\\\\d+(?:x|y)?$\"}",
     {"\"AB-1\"", "\"ABC-123x\"", "\"ZZ-0y\""},
     {"\"A-", "\"ABCD", "\"AB-\"", "\"AB-1z", "\"AB-1xy"}},
    {"{\"type\": \"string\", \"pattern\": \"b.d|^x\"}",
     {"\"abcd\"", "\"b\\\"d and more\"", "\"x\"",
      "\"b\xc3\xa9"
      "d\""},
     {"\"bd\"", "\"ax\"", "\"b\\nd\"", "b"}},
    {"{\"type\": \"string\", \"pattern\": \"^[^a\\\\s]*$\"}",
     {"\"\"", "\"\\\\\\\"b\"", "\"\xf0\x9f\xa6\x8a\""},
     {"\"a", "\" ", "\"\\n", "\"\\t", "\"b\n"}},
    {"{\"type\": \"string\", \"format\": \"date-time\"}",
     {"\"2024-02-29T23:59:59Z\"", "\"2023-12-31T00:00:00.25+01:30\"", "\"2000-02-29T00:00:00Z\"",
      "\"2016-12-31t23:59:60z\""},
     {"\"2023-02-29", "\"1900-02-29", "\"2023-04-31", "\"2023-13", "\"2023-01-01T24"}},
    {"{\"type\": \"string\", \"format\": \"ipv6\"}",
     {"\"::\"", "\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::1:2\"", "\"1::8\""},
     {"\":::", "\"1:2:3:4:5:6:7\"", "\"1::2::", "\"12345", "\"g"}},
    /* no unit is skipped */
    {"{\"type\": \"string\", \"format\": \"duration\"}",
     {"\"P1Y2M3DT4H5M6S\"", "\"PT36H\"", "\"P3W\"", "\"P2M3DT5M\""},
     {"\"PT1H5S", "\"P1Y5D", "\"P1DT\"", "\"P1H", "\"P\""}},
    /* an escape is a character: halves of a pair come together */
    {"{\"type\": \"string\", \"maxLength\": 2}",
     {"\"\\ud83D\\uDE00x\"", "\"\\uD7ff\\ue000\"", "\"\\u00e9\""},
     {"\"\\ud83dx", "\"\\ud83d\"", "\"\\ud83d\\u0041", "\"\\ude00", "\"\\udbff\\ud8"}},
    {"{\"type\": [\"string\", \"null\"], \"format\": \"uuid\"}",
     {"\"01234567-89ab-cdef-0123-456789ABCDEF\"", "null"},
     {"\"0123456-", "\"01234567-89ab-cdef-0123-456789ABCDEF0", "\"g"}},
    {"{}", {"{\"a\":[1,{\"b\":null}]}", "\"x\"", "[ ]", "true"}, {"{a", "[,", "nul1"}},
};

START_TEST(schemas_are_kept_to)
{
    struct error e = {0};
    struct grammar *g;
    struct matcher *m;

    ck_assert_msg(grammar_from_schema(&g, schemas[_i].schema, strlen(schemas[_i].schema), &e) == 0,
                  "%s", e.text);
    ck_assert_int_eq(matcher_new(&m, g, vocabulary, &e), 0);
    grammar_free(g);
    for (int i = 0; i < 5 && schemas[_i].yes[i]; i++) {
        int c = matcher_accept_text(m, matcher_start(m), schemas[_i].yes[i],
                                    strlen(schemas[_i].yes[i]));

        ck_assert_msg(c != MATCHER_DEAD && matcher_complete(m, c), "%s", schemas[_i].yes[i]);
    }
    for (int i = 0; i < 5 && schemas[_i].no[i]; i++)
        ck_assert_msg(matcher_accept_text(m, matcher_start(m), schemas[_i].no[i],
                                          strlen(schemas[_i].no[i])) == MATCHER_DEAD,
                      "%s", schemas[_i].no[i]);
    matcher_free(m);
}
END_TEST

START_TEST(wrong_schemas_are_refused)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"[1]", "#: a schema is an object"},
        {"{\"type\": \"text\"}", "#/type"},
        {"{\"properties\": {\"a\": {\"oneOf\": []}}, \"type\": \"object\"}",
         "#/properties/a/oneOf"},
        {"{\"type\": \"string\", \"pattern\": \"(?=a)\"}", "#/pattern: assertions"},
        {"{\"type\": \"string\", \"pattern\": \"a(b\"}", "#/pattern"},
        {"{\"type\": \"string\", \"pattern\": \"[b-a]\"}", "#/pattern"},
        {"{\"type\": \"string\", \"pattern\": \"a{2,1}\"}", "#/pattern"},
        {"{\"type\": \"string\", \"pattern\": \"a{99999}\"}", "#/pattern"},
        {"{\"type\": \"string\", \"pattern\": \"(a)\\\\1\"}", "#/pattern"},
        {"{\"type\": \"string\", \"pattern\": \"(^a)\"}", "#/pattern"},
        {"{\"type\": \"string\", \"pattern\": \"*\"}", "#/pattern"},
        {"{\"type\": \"string\", \"pattern\": \"a\", \"minLength\": 1}", "#/pattern"},
        {"{\"type\": \"string\", \"format\": \"iri\"}", "#/format"},
        {"{\"type\": \"number\", \"multipleOf\": 0.3}", "#/multipleOf"},
        {"{\"type\": \"number\", \"exclusiveMinimum\": 1, \"maximum\": 1}", "no number lies"},
        {"{\"type\": \"integer\", \"multipleOf\": 7, \"minimum\": 1, \"maximum\": 6}", "none lies"},
        {"{\"type\": \"array\", \"items\": {\"anyOf\": [{}, {\"not\": {}}]}}",
         "#/items/anyOf/1/not"},
        {"{\"type\": \"object\", \"required\": [\"z\"]}", "#/required"},
        {"{\"$ref\": \"#/$defs/x\"}", "leads nowhere"},
        {"{\"$ref\": \"http://x\"}", "#/$ref"},
        {"{\"$ref\": \"#\"}", "never ends"},
        {"{\"type\": \"number\", \"minimum\": 1e300}", "#/minimum"},
        {"{\"type\": \"integer\", \"minimum\": 5, \"maximum\": 4}", "no integer"},
        {"{\"enum\": []}", "#/enum"},
        {"{\"enum\": [1], \"anyOf\": [{}]}", "stands alone"},
        {"{\"type\": \"array\", \"minItems\": 3, \"maxItems\": 2}", "#/minItems"},
        {"{\"type\": \"string\", \"maxLength\": 99999999}", "#/maxLength"},
        {"{\"type\": \"string\"", "JSON schema"},
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct error e = {0};
        struct grammar *g;

        ck_assert_msg(grammar_from_schema(&g, rows[i].text, strlen(rows[i].text), &e) == ERR_INPUT,
                      "%s", rows[i].text);
        ck_assert_msg(strstr(e.text, rows[i].says) != NULL, "%s: %s", rows[i].text, e.text);
        ck_assert_ptr_null(g);
    }
}
END_TEST

/* A number of hundred-thousandths, written with so many digits behind the point. */
static void write_number(char *out, size_t size, long value, int digits)
{
    long scale[] = {100000, 10000, 1000, 100, 10, 1}, part = labs(value) % 100000;

    if (digits)
        snprintf(out, size, "%s%ld.%0*ld", value < 0 ? "-" : "", labs(value) / 100000, digits,
                 part / scale[digits]);
    else
        snprintf(out, size, "%s%ld", value < 0 ? "-" : "", labs(value) / 100000);
}

/* Every number against bounds of every kind, compared as whole numbers are. */
START_TEST(numbers_between_bounds)
{
    static const long bounds[] = {-1234500, -1000000, -100000, -50000, -1,      0,       1,
                                  25000,    50000,    99999,   100000, 1050000, 1099000, 10000000};
    static const char *const kinds[] = {"{\"type\": \"number\", \"%s\": %s, \"%s\": %s}"};
    uint32_t random = 1;

    for (size_t i = 0; i < COUNT(bounds); i++)
        for (size_t k = i; k < COUNT(bounds); k++)
            for (int open = 0; open < 4; open++) {
                char lo[32], hi[32], schema[200];
                struct error e = {0};
                struct grammar *g;
                struct matcher *m;

                write_number(lo, sizeof lo, bounds[i], 5);
                write_number(hi, sizeof hi, bounds[k], 5);
                snprintf(schema, sizeof schema, kinds[0], open & 1 ? "exclusiveMinimum" : "minimum",
                         lo, open & 2 ? "exclusiveMaximum" : "maximum", hi);
                if (i == k && open) {
                    ck_assert(grammar_from_schema(&g, schema, strlen(schema), &e) == ERR_INPUT);
                    continue;
                }
                ck_assert_msg(grammar_from_schema(&g, schema, strlen(schema), &e) == 0, "%s: %s",
                              schema, e.text);
                ck_assert_int_eq(matcher_new(&m, g, vocabulary, &e), 0);
                grammar_free(g);
                for (int n = 0; n < 400; n++) {
                    int digits = (int)((random = random * 1664525u + 1013904223u) >> 16) % 6, c;
                    long near[] = {bounds[i], bounds[k], 0},
                         scale[] = {100000, 10000, 1000, 100, 10, 1};
                    long v = near[n % 3] + (long)((random >> 8) % (n % 2 ? 41 : 400001)) -
                             (n % 2 ? 20 : 200000);
                    char text[40];
                    bool fits;

                    v = v / scale[digits] * scale[digits];
                    fits = (open & 1 ? v > bounds[i] : v >= bounds[i]) &&
                           (open & 2 ? v < bounds[k] : v <= bounds[k]);
                    write_number(text, sizeof text, v, digits);
                    c = matcher_accept_text(m, matcher_start(m), text, strlen(text));
                    ck_assert_msg((c != MATCHER_DEAD && matcher_complete(m, c)) == fits, "%s: %s",
                                  schema, text);
                }
                matcher_free(m);
            }
}
END_TEST

/* Deep, long and doubling ones end soon, with a grammar or a line. */
START_TEST(hostile_grammars_are_bounded)
{
    struct error e = {0};
    size_t room = (size_t)3 << 20, n = 0;
    char *text = mem_alloc(room, 1);
    struct grammar *g;
    struct matcher *m;

    n = (size_t)sprintf(text, "root ::= ");
    memset(text + n, '(', 100000);
    ck_assert_int_eq(grammar_from_gbnf(&g, text, n + 100000, &e), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(e.text, "too deeply"));
    memset(text + n, 'a', GRAMMAR_BYTES);
    ck_assert_int_eq(grammar_from_gbnf(&g, text, n + GRAMMAR_BYTES, &e), ERR_INPUT);
    n = (size_t)sprintf(text, "root ::= \"a\"");
    for (int i = 0; i < 2000; i++)
        n += (size_t)sprintf(text + n, "*");
    ck_assert_int_eq(grammar_from_gbnf(&g, text, n, &e), ERR_INPUT);
    /* each rule says the next one twice: 2^60 texts */
    n = (size_t)sprintf(text, "root ::= r0\n");
    for (int i = 0; i < 60; i++)
        n += (size_t)sprintf(text + n, "r%d ::= r%d r%d\n", i, i + 1, i + 1);
    n += (size_t)sprintf(text + n, "r60 ::= \"a\"?\n");
    if (grammar_from_gbnf(&g, text, n, &e) == 0) {
        if (matcher_new(&m, g, vocabulary, &e) == 0) {
            matcher_mask(m, matcher_start(m));
            matcher_free(m);
        }
        grammar_free(g);
    }
    /* ambiguous: bounded, or failed closed */
    m = matcher_of("root ::= (a a a a)* \na ::= (b | b b | b b b)+\nb ::= [a-z]{0,9} | \"a\"+");
    for (int i = 0, c = matcher_start(m); i < 50 && c != MATCHER_DEAD; i++)
        c = matcher_accept_text(m, c, "aaaa", 4);
    matcher_free(m);
    mem_free(text);
}
END_TEST

START_TEST(memory_may_be_missing)
{
    struct error e = {0};
    struct grammar *g = NULL;
    struct matcher *m = NULL;
    int rc = ERR_MEMORY;

    for (long k = 0; rc < 0; k++) {
        mem_fail_after(k);
        rc = grammar_from_gbnf(&g, json, sizeof json - 1, &e);
        if (rc == 0)
            rc = matcher_new(&m, g, vocabulary, &e);
        mem_fail_after(-1);
        grammar_free(g);
        ck_assert(rc == 0 || rc == ERR_MEMORY);
    }
    matcher_free(m);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("grammar");
    TCase *c = tcase_create("grammar");

    tcase_add_unchecked_fixture(c, set_up, tear_down);
    tcase_add_loop_test(c, texts_are_told_apart, 0, 10);
    tcase_add_test(c, masks_hold_what_may_come);
    tcase_add_test(c, drawn_texts_keep_to_it);
    tcase_add_test(c, it_fails_closed);
    tcase_add_test(c, wrong_grammars_are_refused);
    tcase_add_loop_test(c, schemas_are_kept_to, 0, sizeof schemas / sizeof *schemas);
    tcase_add_test(c, numbers_between_bounds);
    tcase_add_test(c, wrong_schemas_are_refused);
    tcase_add_test(c, hostile_grammars_are_bounded);
    tcase_add_test(c, memory_may_be_missing);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
