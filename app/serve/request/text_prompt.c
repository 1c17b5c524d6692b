/* See text_prompt.h. */
#include "app/serve/request/text_prompt.h"

#include "engine/base/mem.h"

#include <string.h>

int text_prompt(const struct job *j, const char *text, size_t length, struct prompt *p,
                struct refusal *r)
{
    const struct engine_info *info = server_info(j->server);
    const struct hparams *hp = &info->model->hp;
    bool bos = hp->add_bos && hp->bos >= 0;
    int *ids = NULL, n = 0;
    struct stop stop = exchange_stop(j->x);
    struct error e = {0};

    if (tokenizer_encode_masked(info->tokenizer, text, length, true, NULL, &stop, &ids, &n, NULL,
                                &e) < 0)
        return refuse_error(r, &e);
    if (bos && n && ids[0] == hp->bos)
        bos = false; /* the text contains it */
    p->ids = mem_alloc((size_t)n + 1, sizeof *p->ids);
    if (p->ids) {
        p->ids[0] = hp->bos;
        memcpy(p->ids + bos, ids, (size_t)n * sizeof *ids);
        p->n = n + bos;
    }
    mem_free(ids);
    return p->ids ? 0 : refuse(r, 503, "out_of_memory", NULL, "out of memory for the prompt");
}

int text_prompt_ids(const struct job *j, const json_t *v, struct prompt *p, const char *name,
                    struct refusal *r)
{
    int n_vocab = server_info(j->server)->model->hp.n_vocab;
    size_t i;
    json_t *each;

    p->ids = mem_alloc(json_array_size(v) + 1, sizeof *p->ids);
    if (!p->ids)
        return refuse(r, 503, "out_of_memory", NULL, "out of memory for the prompt");
    json_array_foreach(v, i, each)
    {
        if (!json_is_integer(each) || json_integer_value(each) < 0 ||
            json_integer_value(each) >= n_vocab)
            return refuse(r, 400, "invalid_value", name,
                          "'%s' holds what is no id of a token; they are 0 to %d", name,
                          n_vocab - 1);
        p->ids[p->n++] = (int)json_integer_value(each);
    }
    return 0;
}

int text_prompt_any(const struct job *j, const json_t *v, const char *name, struct prompt *p,
                    struct refusal *r)
{
    if (json_is_string(v))
        return text_prompt(j, json_string_value(v), json_string_length(v), p, r);
    if (json_is_array(v))
        return text_prompt_ids(j, v, p, name, r);
    return refuse(r, 400, "invalid_type", name,
                  "'%s' must be a string, a list of ids, or a list of these", name);
}

int text_prompt_end(const struct job *j, struct prompt *p, struct refusal *r)
{
    int context = server_info(j->server)->context;

    p->goes_on = true;
    if (!p->n)
        return refuse(r, 400, "invalid_value", "prompt", "the prompt is empty");
    if (p->n >= context)
        return refuse(r, 400, "context_length_exceeded", "prompt",
                      "this model's maximum context length is exceeded: the prompt has %d tokens, "
                      "the context %d",
                      p->n, context);
    if (p->n > 1) /* repeated prompt: all but its last token is cached */
        p->marks[p->n_marks++] = p->n - 1;
    return 0;
}

int text_prompt_whole(const struct job *j, const json_t *v, const void *with, struct prompt *p,
                      struct refusal *r)
{
    return text_prompt_any(j, v, "prompt", p, r) < 0 ? -1 : text_prompt_end(j, p, r);
}

bool text_prompt_is_list(const json_t *v)
{
    const json_t *first = json_array_get(v, 0);

    return json_is_string(first) || json_is_array(first);
}

int text_prompts(struct job *j, const json_t *v, bool list, const char *name, prompt_read_fn *read,
                 const void *with, struct refusal *r)
{
    size_t n = list ? json_array_size(v) : 1;
    struct prompt *prompts;
    int rc = 0;

    if (!v)
        return refuse(r, 400, "missing_required_parameter", name, "'%s' is missing", name);
    if (n > SERVE_TASKS)
        return refuse(r, 400, "invalid_value", name,
                      "'%s' has %zu entries; at most %d are possible", name, n, SERVE_TASKS);
    if (n * (size_t)j->wish.n > SERVE_TASKS)
        return refuse(r, 400, "invalid_value", name,
                      "'%s' has %zu entries, and 'n' asks for %d choices of each; at most %d are "
                      "possible in all",
                      name, n, (int)j->wish.n, SERVE_TASKS);
    if (!(prompts = mem_alloc(n, sizeof *prompts)))
        return refuse(r, 503, "out_of_memory", NULL, "out of memory for the prompts");
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read(j, list ? json_array_get(v, i) : v, with, &prompts[i], r);
    if (rc == 0)
        rc = job_tasks(j, prompts, (int)n, r);
    else
        for (size_t i = 0; i < n; i++)
            mem_free(prompts[i].ids);
    mem_free(prompts);
    return rc;
}
