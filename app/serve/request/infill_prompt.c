/* See infill_prompt.h. */
#include "app/serve/request/infill_prompt.h"

#include "engine/base/mem.h"
#include "engine/file/weights.h"
#include "engine/model/model.h"

#include <limits.h>
#include <string.h>

/* Most tokens of prefix and suffix together, a quarter of them the suffix's: llama-server's batch.
 * The answer depends little on what is further away. */
#define NEAR 2048
#define SNIPPET "\n\n--- snippet ---\n\n" /* between files, for models without a token for it */

/* ---- the model's tokens ---- */

/* Keys of GGUF below tokenizer.ggml., the older one last, and the tokens of Qwen, Granite and
 * StarCoder, DeepSeek, CodeLlama, GLM. */
static const struct {
    const char *keys[2], *names[7];
    size_t offset;
} kinds[] = {
    {{"fim_pre_token_id", "prefix_token_id"},
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
      "<|code_prefix|>"},
     offsetof(struct infill_tokens, pre)},
    {{"fim_suf_token_id", "suffix_token_id"},
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
      "<|code_suffix|>"},
     offsetof(struct infill_tokens, suf)},
    {{"fim_mid_token_id", "middle_token_id"},
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
      "<|code_middle|>"},
     offsetof(struct infill_tokens, mid)},
    {{"fim_rep_token_id"},
     {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"},
     offsetof(struct infill_tokens, rep)},
    {{"fim_sep_token_id"}, {"<|file_sep|>"}, offsetof(struct infill_tokens, sep)},
    {{"fim_pad_token_id"},
     {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"},
     offsetof(struct infill_tokens, pad)},
};

/* Only a control token counts: text must not be able to spell it. */
static int named(const struct tokenizer *t, const char *name)
{
    int id = tokenizer_find(t, name, strlen(name));
    bool special = false;

    return id >= 0 && tokenizer_piece(t, id, NULL, &special) && special ? id : -1;
}

static int find(const struct engine_info *info, size_t kind)
{
    char key[64];
    int id = -1;

    for (size_t i = 0; i < 2 && kinds[kind].keys[i]; i++) {
        struct meta_value v;

        snprintf(key, sizeof key, "tokenizer.ggml.%s", kinds[kind].keys[i]);
        v = weight_file_meta(info->model->file, key);
        if (v.type == META_INT && v.i >= 0 && v.i < info->model->hp.n_vocab)
            return (int)v.i;
    }
    for (size_t i = 0; i < 7 && kinds[kind].names[i] && id < 0; i++)
        id = named(info->tokenizer, kinds[kind].names[i]);
    return id < info->model->hp.n_vocab ? id : -1;
}

bool infill_tokens(const struct engine_info *info, struct infill_tokens *out)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        *(int *)((char *)out + kinds[i].offset) = find(info, i);
    return out->pre >= 0 && out->suf >= 0 && out->mid >= 0;
}

/* ---- the prompt ---- */

struct ids {
    int *at, n, room;
};

/* The request's parts in tokens. */
struct parts {
    struct ids prefix, suffix, prompt, extra;
};

static int no_memory(struct refusal *r)
{
    return refuse(r, 503, "out_of_memory", NULL, "out of memory for the prompt");
}

static int add(struct ids *to, const int *ids, int n, struct refusal *r)
{
    if (!n)
        return 0;
    if (n > INT_MAX / 4 - to->n)
        return no_memory(r);
    if (to->room - to->n < n) {
        int room = 2 * (to->n + n);

        if (!MEM_FIT(to->at, room))
            return no_memory(r);
        to->room = room;
    }
    memcpy(to->at + to->n, ids, (size_t)n * sizeof *ids);
    to->n += n;
    return 0;
}

static int add_one(struct ids *to, int id, struct refusal *r)
{
    return id < 0 ? 0 : add(to, &id, 1, r);
}

/* In the text no control token counts. */
static int add_text(const struct job *j, struct ids *to, const char *text, size_t n,
                    struct refusal *r)
{
    struct stop stop = exchange_stop(j->x);
    struct error e = {0};
    int *ids = NULL, count = 0, rc;

    if (!n)
        return 0;
    if (tokenizer_encode_masked(server_info(j->server)->tokenizer, text, n, false, NULL, &stop,
                                &ids, &count, NULL, &e) < 0)
        return refuse_error(r, &e);
    rc = add(to, ids, count, r);
    mem_free(ids);
    return rc;
}

static int add_string(const struct job *j, struct ids *to, const json_t *v, struct refusal *r)
{
    return add_text(j, to, json_string_value(v), json_string_length(v), r);
}

/* SEP name, or a line between snippets. */
static int add_file(const struct job *j, const struct infill_tokens *t, struct ids *to,
                    const char *name, struct refusal *r)
{
    if (t->sep < 0)
        return add_text(j, to, SNIPPET, strlen(SNIPPET), r);
    if (add_one(to, t->sep, r) < 0 || add_text(j, to, name, strlen(name), r) < 0)
        return -1;
    return add_text(j, to, "\n", 1, r);
}

static int add_extra(const struct job *j, const struct infill_tokens *t, const json_t *extra,
                     struct ids *to, struct refusal *r)
{
    size_t i;
    json_t *each;

    if (t->rep >= 0 &&
        (add_one(to, t->rep, r) < 0 || add_text(j, to, "myproject\n", strlen("myproject\n"), r)))
        return -1;
    json_array_foreach(extra, i, each)
    {
        const char *name = json_string_value(json_object_get(each, "filename"));

        if (add_file(j, t, to, name ? name : "tmp", r) < 0 ||
            add_string(j, to, json_object_get(each, "text"), r) < 0)
            return -1;
    }
    return t->sep < 0 ? 0 : add_file(j, t, to, "filename", r);
}

static int add_last(struct ids *to, const struct ids *from, int n, struct refusal *r)
{
    return n ? add(to, from->at + from->n - n, n, r) : 0;
}

static int at_most(int n, int most)
{
    return n < most ? n : most > 0 ? most : 0;
}

/* Joins what fits; room: tokens for all but the fixed ones. */
static int join(const struct infill_tokens *t, int bos, const struct parts *s, int room,
                struct ids *to, struct refusal *r)
{
    int near = at_most(room, NEAR), suffix = at_most(s->suffix.n, near / 4),
        prefix = at_most(s->prefix.n, near - suffix), extra;

    suffix = at_most(s->suffix.n, near - prefix); /* what the prefix leaves */
    extra = at_most(s->extra.n, room - prefix - suffix);
    return add_one(to, bos, r) < 0 || add_last(to, &s->extra, extra, r) < 0 ||
                   add_one(to, t->pre, r) < 0 || add_last(to, &s->prefix, prefix, r) < 0 ||
                   add(to, s->prompt.at, s->prompt.n, r) < 0 || add_one(to, t->suf, r) < 0 ||
                   add(to, s->suffix.at, suffix, r) < 0 || add_one(to, t->mid, r) < 0
               ? -1
               : 0;
}

int infill_prompt(const struct job *j, const struct infill_tokens *t, const struct infill *in,
                  struct prompt *p, struct refusal *r)
{
    const struct engine_info *info = server_info(j->server);
    const struct hparams *hp = &info->model->hp;
    int bos = hp->add_bos ? hp->bos : -1, room = info->context - in->predict - 4;
    struct parts s = {0};
    struct ids all = {0};
    int rc = -1;

    if (add_string(j, &s.prefix, in->prefix, r) == 0 &&
        add_string(j, &s.suffix, in->suffix, r) == 0 &&
        add_string(j, &s.prompt, in->prompt, r) == 0 &&
        add_extra(j, t, in->extra, &s.extra, r) == 0) {
        room -= s.prompt.n;
        if (room < 1)
            refuse(r, 400, "context_length_exceeded", "prompt",
                   "this model's maximum context length is exceeded: 'prompt' has %d tokens, the "
                   "context %d",
                   s.prompt.n, info->context);
        else
            rc = join(t, bos, &s, room, &all, r);
    }
    mem_free(s.prefix.at);
    mem_free(s.suffix.at);
    mem_free(s.prompt.at);
    mem_free(s.extra.at);
    p->ids = all.at;
    p->n = all.n;
    p->goes_on = true;
    return rc;
}
