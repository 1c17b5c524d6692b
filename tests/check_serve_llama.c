/* llama-server's own routes: /infill, /slots, /embedding, and reranking. */
#include "tests/serving.h"
#include "tests/support.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INFILL "/infill"
#define GAP \
    "{\"input_prefix\": \"Once upon a time there was a \", \"input_suffix\": \" in a tree.\""
#define RERANK "/v1/rerank"
#define QUESTION "Question: {query}\nText: {document}\nIs it so? "
#define FOXES \
    "{\"query\": \"Who is red?\", \"documents\": [\"An owl.\", {\"text\": \"The fox.\"}, \"x\"]"

static const char *const with_tokens[] = {
    "--override-kv",
    "tokenizer.ggml.fim_pre_token_id=int:16",
    "--override-kv",
    "tokenizer.ggml.suffix_token_id=int:17", /* the older key */
    "--override-kv",
    "tokenizer.ggml.fim_mid_token_id=int:18",
    "--override-kv",
    "tokenizer.ggml.fim_sep_token_id=int:19",
    "--temp",
    "0",
    NULL};

static void with_infill(void)
{
    serving_start(with_tokens);
}

static void with_template(void)
{
    const char *const more[] = {"--rerank-template-file",
                                support_put(support_tmpdir(), "rerank.txt", QUESTION), NULL};

    serving_start(more);
}

/* In the model's file, as converters write it. */
static void with_own_template(void)
{
    const char *const more[] = {"--override-kv", "tokenizer.chat_template.rerank=str:" QUESTION,
                                NULL};

    serving_start(more);
}

static const char *string_of(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    return text ? text : "";
}

static int number_of(const json_t *o, const char *name)
{
    return (int)json_integer_value(json_object_get(o, name));
}

/* Appends to a list the ids of a text without control tokens. */
static void add_ids(json_t *ids, const char *text)
{
    json_t *body = json_pack("{s:s, s:b}", "content", text, "parse_special", 0),
           *o = serving_post_json("/tokenize", body, 200);

    json_array_extend(ids, json_object_get(o, "tokens"));
    json_decref(o);
    json_decref(body);
}

struct wrong {
    const char *path, *body;
    int status;
    const char *said;
};

static void refused(const struct wrong *w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_t *o = serving_post(w[i].path, w[i].body, w[i].status);
        const char *text = string_of(json_object_get(o, "error"), "message");

        ck_assert_msg(strstr(text, w[i].said), "%s: %s", w[i].body, text);
        json_decref(o);
    }
}

/* ---- /infill ---- */

/* The same as the continuation of these tokens. */
static void continues(const json_t *infill, json_t *ids)
{
    json_t *body = json_pack("{s:O, s:i}", "prompt", ids, "max_tokens", 20),
           *o = serving_post_json("/v1/completions", body, 200);
    const json_t *choice = json_array_get(json_object_get(o, "choices"), 0);

    ck_assert_str_eq(string_of(infill, "content"), string_of(choice, "text"));
    ck_assert_int_eq(number_of(infill, "tokens_evaluated"), (int)json_array_size(ids));
    json_decref(o);
    json_decref(body);
    json_decref(ids);
}

START_TEST(a_gap_is_filled)
{
    json_t *o = serving_post(INFILL, GAP ", \"n_predict\": 20, \"prompt\": \"little \"}", 200),
           *ids = json_pack("[i]", 19);

    add_ids(ids, "filename");
    add_ids(ids, "\n");
    json_array_append_new(ids, json_integer(16));
    add_ids(ids, "Once upon a time there was a ");
    add_ids(ids, "little ");
    json_array_append_new(ids, json_integer(17));
    add_ids(ids, " in a tree.");
    json_array_append_new(ids, json_integer(18));
    continues(o, ids);
    ck_assert_int_eq(number_of(o, "tokens_predicted"), 20);
    ck_assert_str_eq(string_of(o, "stop_type"), "limit");
    ck_assert_int_gt(number_of(json_object_get(o, "timings"), "prompt_n"), 0);
    json_decref(o);
}
END_TEST

START_TEST(other_files_come_first)
{
    json_t *o = serving_post(INFILL,
                             GAP ", \"n_predict\": 20, \"input_extra\": "
                                 "[{\"filename\": \"a.txt\", \"text\": \"A fox ran.\"}, "
                                 "{\"text\": \"<|end|>\"}]}",
                             200),
           *ids = json_pack("[i]", 19);

    add_ids(ids, "a.txt");
    add_ids(ids, "\n");
    add_ids(ids, "A fox ran.");
    json_array_append_new(ids, json_integer(19));
    add_ids(ids, "tmp");
    add_ids(ids, "\n");
    add_ids(ids, "<|end|>"); /* a text, no control token */
    json_array_append_new(ids, json_integer(19));
    add_ids(ids, "filename");
    add_ids(ids, "\n");
    json_array_append_new(ids, json_integer(16));
    add_ids(ids, "Once upon a time there was a ");
    json_array_append_new(ids, json_integer(17));
    add_ids(ids, " in a tree.");
    json_array_append_new(ids, json_integer(18));
    continues(o, ids);
    json_decref(o);
}
END_TEST

/* A token that begins another file ends the answer. */
START_TEST(another_file_ends_it)
{
    json_t *o = serving_post(INFILL, GAP ", \"n_predict\": 20, \"logit_bias\": {\"19\": 100}}",
                             200),
           *not = serving_post(INFILL, GAP ", \"n_predict\": 20, \"logit_bias\": {\"20\": 100}}",
                               200);

    ck_assert_str_eq(string_of(o, "stop_type"), "eos");
    ck_assert_str_eq(string_of(o, "content"), "");
    ck_assert_str_eq(string_of(not, "stop_type"), "limit");
    json_decref(o);
    json_decref(not );
}
END_TEST

START_TEST(what_is_far_away_is_left_out)
{
    char *body = malloc(80000), *at = body;
    json_t *o;

    at += sprintf(at, "{\"n_predict\": 5, \"input_prefix\": \"");
    for (int i = 0; i < 3000; i++)
        at += sprintf(at, "far ");
    at += sprintf(at, "Once upon a time\", \"input_suffix\": \" in a tree.");
    for (int i = 0; i < 3000; i++)
        at += sprintf(at, " far");
    strcpy(at, "\"}");
    o = serving_post(INFILL, body, 200);
    ck_assert_int_le(number_of(o, "tokens_evaluated"), 1024 - 5);
    ck_assert_int_ge(number_of(o, "tokens_evaluated"), 1024 - 10);
    ck_assert_int_eq(number_of(o, "tokens_predicted"), 5);
    json_decref(o);
    free(body);
}
END_TEST

/* After its time an answer ends with its line. */
START_TEST(time_is_limited)
{
#define LINES ", \"n_predict\": 900, \"ignore_eos\": true, \"grammar\": "
    json_t *lines = serving_post(INFILL,
                                 GAP LINES "\"root ::= (\\\"a\\\" \\\"\\\\n\\\")+\", "
                                           "\"t_max_predict_ms\": 1}",
                                 200),
           *line = serving_post(INFILL,
                                GAP LINES "\"root ::= \\\"a\\\"+\", \"t_max_predict_ms\": 1}", 200);

    ck_assert_int_lt(number_of(lines, "tokens_predicted"), 800);
    ck_assert_str_eq(string_of(lines, "stop_type"), "limit");
    ck_assert_int_eq(number_of(line, "tokens_predicted"), 900);
    json_decref(lines);
    json_decref(line);
}
END_TEST

/* As llama.vim asks. */
/* The same text as OpenAI's API gives; a list of prompts is answered by a list. */
START_TEST(a_prompt_is_continued)
{
    json_t *o = serving_post("/completion",
                             "{\"prompt\": \"Once upon a time\", \"n_predict\": 12, "
                             "\"cache_prompt\": true, \"temperature\": 0}",
                             200),
           *other = serving_post("/v1/completions",
                                 "{\"prompt\": \"Once upon a time\", \"max_tokens\": 12, "
                                 "\"temperature\": 0}",
                                 200),
           *two = serving_post("/completions",
                               "{\"prompt\": [\"Once upon a time\", [16, 17]], \"n_predict\": 12, "
                               "\"temperature\": 0, \"response_fields\": [\"content\", \"index\"]}",
                               200);

    ck_assert_str_ne(string_of(o, "content"), "");
    ck_assert_str_eq(string_of(o, "content"), serving_text_at(other, "text", NULL));
    ck_assert_str_eq(string_of(o, "stop_type"), "limit");
    ck_assert_int_eq(number_of(o, "tokens_predicted"), 12);
    ck_assert_uint_eq(json_array_size(two), 2);
    ck_assert_str_eq(string_of(json_array_get(two, 0), "content"), string_of(o, "content"));
    ck_assert_int_eq(number_of(json_array_get(two, 1), "index"), 1);
    ck_assert_uint_eq(json_object_size(json_array_get(two, 1)), 2);
    json_decref(o);
    json_decref(other);
    json_decref(two);
}
END_TEST

/* As an editor asks for it: events without a name, and the last one says that it is. */
START_TEST(a_prompt_is_streamed)
{
    const char *ask = "{\"model\": \"" MODEL "\", \"prompt\": \"Once upon a time\", "
                      "\"n_predict\": 40, \"stop\": [\"was\", \"\\n\\n\"], \"mirostat\": 0, "
                      "\"temperature\": 0, \"stream\": ";
    char text[2000] = "", body[400], *line, *rest;
    json_t *o, *each;
    bool ended = false;
    struct reply r;

    snprintf(body, sizeof body, "%sfalse}", ask);
    o = serving_post("/completion", body, 200);
    snprintf(body, sizeof body, "%strue}", ask);
    r = serving_ask("POST", "/completion", NULL, body);
    for (rest = r.body; (line = strtok_r(NULL, "\n", &rest));) {
        ck_assert_int_eq(strncmp(line, "data: ", 6), 0);
        ck_assert((each = json_loads(line + 6, 0, NULL)) != NULL && !ended);
        strcat(text, string_of(each, "content"));
        if ((ended = json_is_true(json_object_get(each, "stop"))))
            ck_assert_str_eq(string_of(each, "stopping_word"), "was");
        json_decref(each);
    }
    ck_assert(ended);
    ck_assert_str_eq(text, string_of(o, "content"));
    ck_assert_str_eq(string_of(o, "stop_type"), "word");
    json_decref(o);
    free(r.head);
}
END_TEST

START_TEST(wrong_prompts_are_named)
{
    static const struct {
        const char *body, *param;
    } wrong[] = {
        {"{\"n_predict\": 2}", "prompt"},
        {"{\"prompt\": 5}", "prompt"},
        {"{\"prompt\": []}", "prompt"},
        {"{\"prompt\": [5, \"x\"]}", "prompt"},
        {"{\"prompt\": \"x\", \"n_probs\": 3}", "n_probs"},
        {"{\"prompt\": \"x\", \"n\": 2}", "n"},
        {"{\"prompt\": \"x\", \"n_predict\": \"2\"}", "n_predict"},
        {"{\"prompt\": \"x\", \"response_fields\": [1]}", "response_fields"},
        {"{\"prompt\": \"x\", \"json_schema\": 5}", "json_schema"},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *o = serving_post("/completion", wrong[i].body, 400);

        ck_assert_str_eq(string_of(json_object_get(o, "error"), "param"), wrong[i].param);
        json_decref(o);
    }
}
END_TEST

START_TEST(an_editors_request)
{
    json_t *o = serving_post(INFILL,
                             GAP ", \"n_predict\": 8, \"n_indent\": 0, \"top_k\": 40, \"top_p\": "
                                 "0.9, \"stream\": false, \"samplers\": [\"top_k\", \"top_p\", "
                                 "\"infill\"], \"cache_prompt\": true, \"t_max_predict_ms\": 1000, "
                                 "\"response_fields\": [\"content\", \"timings/prompt_n\", "
                                 "\"truncated\", \"nothing/here\", \"stop/x\"]}",
                             200);

    ck_assert_int_eq((int)json_object_size(o), 3);
    ck_assert_str_ne(string_of(o, "content"), "");
    ck_assert(json_is_integer(json_object_get(o, "timings/prompt_n")));
    ck_assert(json_is_false(json_object_get(o, "truncated")));
    json_decref(o);
}
END_TEST

START_TEST(a_gap_is_streamed)
{
    json_t *o = serving_post(INFILL, GAP ", \"n_predict\": 20}", 200), *each;
    struct reply r = serving_ask("POST", INFILL, NULL,
                                 GAP ", \"n_predict\": 20, \"stream\": true}");
    char text[2000] = "", *line, *rest = r.body;
    bool ended = false;

    while ((line = strtok_r(NULL, "\n", &rest))) {
        ck_assert_int_eq(strncmp(line, "data: ", 6), 0);
        ck_assert((each = json_loads(line + 6, 0, NULL)) != NULL && !ended);
        strcat(text, string_of(each, "content"));
        ended = json_is_true(json_object_get(each, "stop"));
        json_decref(each);
    }
    ck_assert(ended);
    ck_assert_str_eq(text, string_of(o, "content"));
    json_decref(o);
    free(r.head);
}
END_TEST

START_TEST(wrong_gaps_are_named)
{
    static const struct wrong wrong[] = {
        {INFILL, "{\"input_suffix\": \"\"}", 400, "'input_prefix' is missing"},
        {INFILL, "{\"input_prefix\": \"\"}", 400, "'input_suffix' is missing"},
        {INFILL, GAP ", \"prompt\": [1]}", 400, "'prompt' must be a string"},
        {INFILL, GAP ", \"input_extra\": \"x\"}", 400, "'input_extra'"},
        {INFILL, GAP ", \"input_extra\": [\"x\"]}", 400, "'input_extra'"},
        {INFILL, GAP ", \"input_extra\": [{\"text\": 5}]}", 400, "'input_extra'"},
        {INFILL, GAP ", \"response_fields\": [5]}", 400, "'response_fields'"},
        {INFILL, GAP ", \"n\": 2}", 400, "'n' must be 1"},
        {INFILL, GAP ", \"n_predict\": \"x\"}", 400, "'n_predict'"},
        {INFILL, GAP ", \"samplers\": [\"none\"]}", 400, "samplers"},
    };

    refused(wrong, sizeof wrong / sizeof *wrong);
    json_decref(serving_post(INFILL,
                             "{\"input_prefix\": \"\", \"input_suffix\": \"\", "
                             "\"n_predict\": 0}",
                             200));
}
END_TEST

/* ---- reranking ---- */

/* The probability of a token after these, by /v1/completions. */
static double chance(const json_t *ids, int id)
{
    json_t *all = json_copy((json_t *)(uintptr_t)ids), *body, *o, *list;
    double p;

    json_array_append_new(all, json_integer(id));
    body = json_pack("{s:o, s:i, s:b, s:i}", "prompt", all, "max_tokens", 0, "echo", 1, "logprobs",
                     0);
    o = serving_post_json("/v1/completions", body, 200);
    list = json_object_get(json_object_get(json_array_get(json_object_get(o, "choices"), 0),
                                           "logprobs"),
                           "token_logprobs");
    p = exp(json_number_value(json_array_get(list, json_array_size(list) - 1)));
    json_decref(o);
    json_decref(body);
    return p;
}

static int id_of(const char *word)
{
    json_t *ids = json_array();
    int id;

    add_ids(ids, word);
    ck_assert_int_eq((int)json_array_size(ids), 1);
    id = (int)json_integer_value(json_array_get(ids, 0));
    json_decref(ids);
    return id;
}

START_TEST(scores_are_the_models)
{
    static const char *const texts[] = {"An owl.", "The fox.", "x"};
    json_t *o = serving_post(RERANK, FOXES "}", 200), *results = json_object_get(o, "results");
    int yes = id_of("yes"), no = id_of("no"), seen = 0, tokens = 0;
    double before = 2.0;

    ck_assert_int_eq((int)json_array_size(results), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *each = json_array_get(results, i);
        int at = number_of(each, "index");
        double got = json_number_value(json_object_get(each, "relevance_score")), want;
        json_t *ids = json_array();
        char prompt[200];

        ck_assert(at >= 0 && at < 3 && got <= before);
        snprintf(prompt, sizeof prompt, "Question: Who is red?\nText: %s\nIs it so? ", texts[at]);
        add_ids(ids, prompt);
        tokens += (int)json_array_size(ids);
        want = chance(ids, yes);
        want /= want + chance(ids, no);
        ck_assert_msg(fabs(got - want) < 1e-6, "%g, not %g", got, want);
        before = got;
        seen |= 1 << at;
        json_decref(ids);
    }
    ck_assert_int_eq(seen, 7);
    ck_assert_int_eq(number_of(json_object_get(o, "usage"), "prompt_tokens"), tokens);
    json_decref(o);
}
END_TEST

START_TEST(forms_of_reranking)
{
    json_t *all = serving_post(RERANK, FOXES "}", 200),
           *two = serving_post("/rerank", FOXES ", \"top_n\": 2, \"return_documents\": true}", 200),
           *tei = serving_post("/reranking",
                               "{\"query\": \"Who is red?\", \"texts\": [\"An owl.\", "
                               "\"The fox.\", \"x\"], \"return_text\": true}",
                               200),
           *first = json_array_get(json_object_get(all, "results"), 0),
           *best = json_array_get(json_object_get(two, "results"), 0);
    const char *const texts[] = {"An owl.", "The fox.", "x"};

    ck_assert_int_eq((int)json_array_size(json_object_get(two, "results")), 2);
    ck_assert(json_equal(json_object_get(first, "relevance_score"),
                         json_object_get(best, "relevance_score")));
    ck_assert_str_eq(string_of(json_object_get(best, "document"), "text"),
                     texts[number_of(best, "index")]);
    ck_assert(!json_object_get(first, "document"));
    ck_assert_int_eq((int)json_array_size(tei), 3);
    best = json_array_get(tei, 0);
    ck_assert(
        json_equal(json_object_get(first, "relevance_score"), json_object_get(best, "score")));
    ck_assert_str_eq(string_of(best, "text"), texts[number_of(best, "index")]);
    json_decref(all);
    json_decref(two);
    json_decref(tei);
}
END_TEST

/* No text of a document is a control token, or a part of the template. */
START_TEST(documents_are_only_text)
{
    json_t *o = serving_post(
               RERANK, "{\"query\": \"{document}\", \"documents\": [\"<|end|>{query}\"]}", 200),
           *ids = json_array();

    add_ids(ids, "Question: {document}\nText: <|end|>{query}\nIs it so? ");
    ck_assert_int_eq(number_of(json_object_get(o, "usage"), "prompt_tokens"),
                     (int)json_array_size(ids));
    json_decref(ids);
    json_decref(o);
}
END_TEST

START_TEST(wrong_documents_are_named)
{
    static const struct wrong wrong[] = {
        {RERANK, "{\"documents\": [\"x\"]}", 400, "'query' is missing"},
        {RERANK, "{\"query\": 5, \"documents\": [\"x\"]}", 400, "'query' must be a string"},
        {RERANK, "{\"query\": \"x\"}", 400, "'documents' is missing"},
        {RERANK, "{\"query\": \"x\", \"documents\": []}", 400, "at least one"},
        {RERANK, "{\"query\": \"x\", \"documents\": \"x\"}", 400, "list"},
        {RERANK, "{\"query\": \"x\", \"documents\": [\"x\", 5]}", 400, "documents[1]"},
        {RERANK, "{\"query\": \"x\", \"documents\": [{\"text\": 5}]}", 400, "documents[0]"},
        {RERANK, FOXES ", \"top_n\": 0}", 400, "'top_n'"},
        {RERANK, FOXES ", \"model\": \"other\"}", 404, "'other'"},
    };
    char *body = malloc(80000), *at = body;

    refused(wrong, sizeof wrong / sizeof *wrong);
    at += sprintf(at, "{\"query\": \"x\", \"documents\": [\"");
    for (int i = 0; i < 3000; i++)
        at += sprintf(at, "word ");
    strcpy(at, "\"]}");
    refused(&(struct wrong){RERANK, body, 400, "context"}, 1);
    free(body);
}
END_TEST

/* ---- without tokens or a template ---- */

START_TEST(what_a_model_cannot_is_said)
{
    static const struct wrong wrong[] = {
        {INFILL, GAP "}", 400, "no tokens for infilling"},
        {RERANK, FOXES "}", 400, "--rerank-template-file"},
    };

    refused(wrong, 2);
}
END_TEST

START_TEST(embeddings_of_llama_server)
{
    json_t *ours = serving_post("/v1/embeddings", "{\"input\": [\"a fox\", \"an owl\"]}", 200),
           *its = serving_post("/embedding", "{\"content\": [\"a fox\", \"an owl\"]}", 200),
           *raw = serving_post("/embeddings", "{\"input\": \"an owl\", \"embd_normalize\": -1}",
                               200),
           *list = json_object_get(ours, "data"), *v, *w;
    double sum = 0.0;

    ck_assert_int_eq((int)json_array_size(its), 2);
    for (size_t i = 0; i < 2; i++) {
        v = json_array_get(json_object_get(json_array_get(its, i), "embedding"), 0);
        ck_assert_int_eq(number_of(json_array_get(its, i), "index"), (int)i);
        ck_assert(json_equal(v, json_object_get(json_array_get(list, i), "embedding")));
    }
    w = json_array_get(json_object_get(json_array_get(raw, 0), "embedding"), 0);
    for (size_t i = 0; i < json_array_size(w); i++)
        sum += pow(json_number_value(json_array_get(w, i)), 2.0);
    for (size_t i = 0; i < json_array_size(w); i++)
        ck_assert(fabs(json_number_value(json_array_get(w, i)) / sqrt(sum) -
                       json_number_value(json_array_get(v, i))) < 1e-6);
    ck_assert(sum > 2.0);
    json_decref(ours);
    json_decref(its);
    json_decref(raw);
    refused(&(struct wrong){"/embedding", "{\"input\": \"x\", \"embd_normalize\": -2}", 400,
                            "'embd_normalize'"},
            1);
}
END_TEST

/* ---- /slots ---- */

static json_t *slots(const char *query, int status)
{
    char path[64];
    struct reply r;
    json_t *o;

    snprintf(path, sizeof path, "/slots%s", query);
    r = serving_ask("GET", path, NULL, NULL);
    o = r.status == status ? serving_read_json(&r, status) : NULL;
    free(r.head);
    return o;
}

static void *answer_on(void *arg)
{
    atomic_bool *on = arg;

    while (atomic_load(on))
        free(serving_ask("POST", CHAT, NULL,
                         FOX ", \"max_tokens\": 900, \"ignore_eos\": true, \"n\": 4}")
                 .head);
    return NULL;
}

/* Polls until all four sessions answer, and fail_on_no_slot refuses. */
static bool all_busy(void)
{
    for (int i = 0; i < 3000; i++) {
        json_t *o = slots("?fail_on_no_slot=1", 503);
        bool busy = o != NULL;

        if (o)
            ck_assert_str_eq(string_of(json_object_get(o, "error"), "code"), "no_slot");
        json_decref(o);
        if (busy)
            return true;
    }
    return false;
}

START_TEST(sessions_are_listed)
{
    json_t *o = slots("", 200), *first;
    pthread_t thread;
    atomic_bool on = true;
    bool seen;

    ck_assert_int_eq((int)json_array_size(o), 4);
    for (size_t i = 0; i < 4; i++) {
        first = json_array_get(o, i);
        ck_assert_int_eq(number_of(first, "id"), (int)i);
        ck_assert_int_eq(number_of(first, "n_ctx"), 1024);
        ck_assert(json_is_false(json_object_get(first, "is_processing")));
        ck_assert_str_eq(string_of(first, "state"), "idle");
    }
    json_decref(o);
    json_decref(slots("?fail_on_no_slot=1", 200));
    pthread_create(&thread, NULL, answer_on, &on);
    seen = all_busy();
    atomic_store(&on, false);
    pthread_join(thread, NULL);
    ck_assert(seen);
    for (int i = 0; i < 3000; i++) { /* a tenth of a second old at most */
        o = slots("?fail_on_no_slot=0", 200);
        first = json_array_get(o, 0);
        if (json_is_false(json_object_get(first, "is_processing")))
            break;
        json_decref(o);
    }
    ck_assert_int_eq(number_of(first, "n_prompt_tokens"), 11);
    ck_assert_int_eq(
        number_of(json_array_get(json_object_get(first, "next_token"), 0), "n_decoded"), 900);
    json_decref(o);
}
END_TEST

static void add_case(Suite *s, const char *name, void (*start)(void), const TTest *const *tests)
{
    TCase *t = tcase_create(name);

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, start, serving_end_well);
    for (; *tests; tests++)
        tcase_add_test(t, *tests);
    suite_add_tcase(s, t);
}

static Suite *suite(void)
{
    Suite *s = suite_create("serve_llama");
    const TTest *const gaps[] = {a_gap_is_filled,
                                 other_files_come_first,
                                 another_file_ends_it,
                                 what_is_far_away_is_left_out,
                                 an_editors_request,
                                 a_gap_is_streamed,
                                 time_is_limited,
                                 wrong_gaps_are_named,
                                 NULL};
    const TTest *const ranks[] = {scores_are_the_models, forms_of_reranking,
                                  documents_are_only_text, wrong_documents_are_named, NULL};
    const TTest *const plain[] = {what_a_model_cannot_is_said,
                                  embeddings_of_llama_server,
                                  sessions_are_listed,
                                  a_prompt_is_continued,
                                  a_prompt_is_streamed,
                                  wrong_prompts_are_named,
                                  NULL};

    add_case(s, "infill", with_infill, gaps);
    add_case(s, "rerank", with_template, ranks);
    add_case(s, "own template", with_own_template, (const TTest *[]){scores_are_the_models, NULL});
    add_case(s, "plain", serving_plain_server, plain);
    return s;
}

int main(void)
{
    return support_run(suite());
}
