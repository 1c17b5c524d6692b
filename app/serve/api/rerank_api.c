/* /v1/rerank: documents by how probably they answer a query, in the forms of Jina, Cohere and
 * llama-server ("documents"), and of TEI ("texts"). Of every document the model is asked a question
 * and gives no answer: what counts is the probability of "yes" beside that of "no". Reading: pool;
 * writing: dispatcher. */
#include "app/serve/api/apis.h"
#include "app/serve/dispatch/dispatcher.h"
#include "app/serve/request/job.h"
#include "app/serve/request/request_fields.h"
#include "app/serve/request/rerank_prompt.h"
#include "app/serve/request/text_prompt.h"

#include "engine/base/mem.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

/* ---- the request's fields, read again when the answer is written ---- */

static const json_t *documents_of(const struct job *j)
{
    const json_t *v = field_get(j->body, "documents");

    return v ? v : field_get(j->body, "texts");
}

static bool is_tei(const struct job *j)
{
    return !field_get(j->body, "documents");
}

/* A document's text: itself, or its "text"; NULL: it is neither. */
static const json_t *text_of(const json_t *document)
{
    const json_t *v = json_is_object(document) ? json_object_get(document, "text") : document;

    return json_is_string(v) ? v : NULL;
}

/* ---- writing ---- */

struct ranked {
    int index;
    double score;
};

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    return x->score != y->score ? (x->score < y->score ? 1 : -1) : x->index - y->index;
}

/* P(yes) / (P(yes) + P(no)); one that is impossible has -inf. */
static double score(const struct task *t)
{
    double yes = (double)t->asked[0], no = (double)t->asked[1];

    return yes == no ? 0.5 : 1.0 / (1.0 + exp(no - yes));
}

static json_t *result_json(const struct job *j, const struct ranked *x)
{
    bool text = json_is_true(field_get(j->body, "return_text")) ||
                json_is_true(field_get(j->body, "return_documents"));
    json_t *o = json_pack("{s:i, s:f}", "index", x->index, is_tei(j) ? "score" : "relevance_score",
                          x->score),
           *own = (json_t *)(uintptr_t)text_of(json_array_get(documents_of(j), (size_t)x->index));

    if (text && is_tei(j))
        json_object_set(o, "text", own);
    else if (text)
        json_object_set_new(o, "document", json_pack("{s:O}", "text", own));
    return o;
}

static json_t *results_json(const struct job *j)
{
    struct ranked *all = mem_alloc((size_t)j->n_tasks, sizeof *all);
    json_t *list = all ? json_array() : NULL;

    for (int i = 0; all && i < j->n_tasks; i++)
        all[i] = (struct ranked){i, score(&j->tasks[i])};
    if (all)
        qsort(all, (size_t)j->n_tasks, sizeof *all, by_score);
    for (int i = 0; all && i < j->n_tasks && i < j->wish.top_n; i++)
        json_array_append_new(list, result_json(j, &all[i]));
    mem_free(all);
    return list;
}

static json_t *rerank_whole(struct job *j)
{
    json_t *results = results_json(j);
    struct usage u = job_usage(j);

    if (is_tei(j))
        return results;
    return json_pack("{s:s, s:s, s:s, s:{s:i, s:i}, s:o}", "id", j->id, "object", "list", "model",
                     j->server->model_id, "usage", "prompt_tokens", u.prompt, "total_tokens",
                     u.prompt, "results", results);
}

static const struct dialect rerank = {.whole = rerank_whole};

/* ---- reading ---- */

static int check_documents(const json_t *list, struct refusal *r)
{
    size_t n = json_array_size(list);

    if (!list)
        return refuse(r, 400, "missing_required_parameter", "documents", "'documents' is missing");
    if (!json_is_array(list) || !n)
        return refuse(r, 400, "invalid_type", "documents",
                      "'documents' must be a list of strings, of at least one");
    for (size_t i = 0; i < n; i++)
        if (!text_of(json_array_get(list, i)))
            return refuse(r, 400, "invalid_type", "documents",
                          "documents[%zu] is neither a string nor an object with a \"text\"", i);
    return 0;
}

static int read_fields(struct job *j, struct refusal *r)
{
    static const struct field own[] = {
        {"top_n", FIELD_INT, 1, INT_MAX, offsetof(struct wish, top_n)}};
    const json_t *query;

    j->wish.top_n = INT_MAX;
    if (request_body(j, r) < 0 || fields_read(j->body, own, 1, &j->wish, r) < 0)
        return -1;
    query = field_get(j->body, "query");
    if (!json_is_string(query))
        return refuse(r, 400, query ? "invalid_type" : "missing_required_parameter", "query",
                      query ? "'query' must be a string" : "'query' is missing");
    return check_documents(documents_of(j), r);
}

static int read_document(const struct job *j, const json_t *v, const void *with, struct prompt *p,
                         struct refusal *r)
{
    return rerank_prompt(j, with, field_get(j->body, "query"), text_of(v), p, r);
}

/* One task a document, without an answer. */
static int make_tasks(struct job *j, const struct rerank *k, struct refusal *r)
{
    if (text_prompts(j, documents_of(j), true, "documents", read_document, k, r) < 0)
        return -1;
    for (int i = 0; i < j->n_tasks; i++) {
        struct turn *t = &j->tasks[i].turn;

        t->asked[t->n_asked++] = k->yes;
        t->asked[t->n_asked++] = k->no;
    }
    return 0;
}

static int read_rerank(struct job *j, struct refusal *r)
{
    struct rerank k;

    if (read_fields(j, r) < 0 || rerank_of(j, &k, r) < 0)
        return -1;
    j->wish.max_tokens = 0;
    j->wish.asks = true;
    return make_tasks(j, &k, r);
}

void api_rerank(struct exchange *x)
{
    dispatcher_answer(x, &rerank, "rerank-", read_rerank);
}
