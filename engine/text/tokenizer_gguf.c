/* Reads the tokenizer.ggml.* keys of a GGUF. One thread. */
#include "engine/text/tokenizer_build.h"

#include "engine/base/mem.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GGUF_NORMAL = 1, GGUF_UNKNOWN, GGUF_CONTROL, GGUF_USER, GGUF_UNUSED, GGUF_BYTE };

struct scored {
    double score;
    int id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    return x->score > y->score ? -1 : x->score < y->score ? 1 : 0;
}

/* Scores become ranks, so that both ways of merging compare integers; equal scores share a rank
 * (then the leftmost pair is merged first). */
static int rank_by_score(struct tokenizer *t, struct meta_value scores, struct error *e)
{
    struct scored *order = mem_alloc((size_t)t->n_pieces, sizeof *order);
    int rank = 0;

    if (!order)
        return build_no_memory(e);
    for (int i = 0; i < t->n_pieces; i++) {
        double score = i < (int)scores.len ? meta_at(&scores, (size_t)i).f : 0.0;

        order[i] = (struct scored){isnan(score) ? -INFINITY : score, i};
    }
    qsort(order, (size_t)t->n_pieces, sizeof *order, by_score);
    for (int i = 0; i < t->n_pieces; i++) {
        rank += i > 0 && order[i].score < order[i - 1].score;
        t->pieces[order[i].id].rank = rank;
    }
    mem_free(order);
    return 0;
}

/* GGUF has no strip rules. In Phi's vocabularies (frame tokens <|user|>, <|assistant|>, <|end|>)
 * every control token but these three absorbs the blanks after it, and so does </s>; llama.cpp does
 * the same. */
static bool phi_strips(const struct tokenizer *t, const char *text, size_t len)
{
    if (tokenizer_lookup(t, "<|end|>", 7) < 0 || tokenizer_lookup(t, "<|assistant|>", 13) < 0 ||
        tokenizer_lookup(t, "<|user|>", 8) < 0)
        return false;
    return !(len == 5 && memcmp(text, "<unk>", 5) == 0) &&
           !(len == 3 && memcmp(text, "<s>", 3) == 0) &&
           !(len == 13 && memcmp(text, "<|endoftext|>", 13) == 0);
}

static int read_gguf_pieces(struct tokenizer *t, struct meta_value tokens, struct meta_value types,
                            struct error *e)
{
    t->added = mem_alloc(tokens.len, sizeof *t->added);
    if (!t->added)
        return build_no_memory(e);
    for (int id = 0; id < t->n_pieces; id++) {
        struct meta_value v = meta_at(&tokens, (size_t)id);
        int64_t type = types.type == META_ARRAY && (size_t)id < types.len
                           ? meta_at(&types, (size_t)id).i
                           : GGUF_NORMAL;
        struct piece *p = &t->pieces[id];
        int status = build_piece(t, id, v.s, v.len, e);

        if (status < 0)
            return status;
        p->in_model = type == GGUF_NORMAL || type == GGUF_USER || type == GGUF_UNUSED;
        p->special = type == GGUF_CONTROL || type == GGUF_UNKNOWN;
        if (type == GGUF_UNKNOWN && t->unknown < 0)
            t->unknown = id;
        if (type == GGUF_BYTE && build_byte_of(v.s, v.len) >= 0) {
            p->byte = (int16_t)build_byte_of(v.s, v.len);
            t->byte_ids[p->byte] = id;
            t->byte_fallback = true;
        }
        if ((p->special || type == GGUF_USER) && v.len)
            t->added[t->n_added++] = (struct added){.id = id,
                                                    .text = p->text,
                                                    .len = p->len,
                                                    .control = p->special ||
                                                               build_is_control(v.s, v.len)};
    }
    return 0;
}

/* A merge with missing tokens is ignored: some converters write the list of a larger vocabulary. */
static int read_gguf_merges(struct tokenizer *t, struct meta_value list, struct error *e)
{
    int status = build_merges(t, list.len, e);

    for (size_t i = 0; status == 0 && i < list.len; i++) {
        struct meta_value m = meta_at(&list, i);
        const char *space = m.type == META_STRING && m.len > 2 ? memchr(m.s + 1, ' ', m.len - 2)
                                                               : NULL;

        if (space)
            build_merge(t, m.s, (size_t)(space - m.s), space + 1, m.len - (size_t)(space - m.s) - 1,
                        (int)i);
    }
    return status;
}

/* tokenizer.ggml.pre: how text is split before merging. An unknown name reduces quality but is no
 * error: the file is read as one without a name. */
static int read_gguf_pre(struct tokenizer *t, const struct weight_file *f, unsigned *flags,
                         struct error *e)
{
    struct meta_value v = weight_file_meta(f, "tokenizer.ggml.pre");
    bool named = v.type == META_STRING && v.len > 0;
    int status = named ? pre_tokenizer_add_named(&t->pre, v.s, v.len, flags, e) : 1;

    if (status <= 0)
        return status;
    if (named)
        error_set(&t->notice, ERR_MODEL,
                  "the file names a pre-tokenizer that is not known, '%.*s': text is cut as where "
                  "none is named, and answers may be worse",
                  (int)(v.len < 40 ? v.len : 40), v.s);
    else
        error_set(&t->notice, ERR_MODEL,
                  "the file names no pre-tokenizer (tokenizer.ggml.pre): answers may be worse than "
                  "a newer conversion's");
    return pre_tokenizer_add_named(&t->pre, PRE_TOKENIZER_DEFAULT, strlen(PRE_TOKENIZER_DEFAULT),
                                   flags, e);
}

/* GPT-2's kind: merges from bytes. */
static int read_gguf_byte_level(struct tokenizer *t, const struct weight_file *f, struct error *e)
{
    struct meta_value merges = weight_file_meta(f, "tokenizer.ggml.merges"),
                      bos = weight_file_meta(f, "tokenizer.ggml.add_bos_token");
    bool *literal = mem_alloc((size_t)t->n_pieces, sizeof *literal);
    unsigned flags = 0;
    int status = literal ? 0 : build_no_memory(e);

    if (status == 0 && merges.type != META_ARRAY)
        status = error_set(e, ERR_MODEL, "%s: the tokenizer has no merges (tokenizer.ggml.merges)",
                           weight_file_path(f));
    if (status == 0)
        status = read_gguf_merges(t, merges, e);
    for (int i = 0; status == 0 && i < t->n_added; i++)
        literal[t->added[i].id] = true;
    if (status == 0)
        status = byte_level_decode(t, literal, e);
    mem_free(literal);
    if (status == 0 && (status = read_gguf_pre(t, f, &flags, e)) < 0)
        error_prefix(e, "%s", weight_file_path(f));
    t->ignore_merges = flags & PRE_WHOLE;
    t->add_bos = bos.type == META_BOOL ? bos.i != 0 : (flags & PRE_BOS) != 0;
    return status == 0 && (flags & PRE_NFC) ? build_step(t, NORMALIZE_NFC, "", "", e) : status;
}

/* SentencePiece's: merges from characters, by a list or by score. */
static int read_gguf_sentencepiece(struct tokenizer *t, const struct weight_file *f,
                                   struct error *e)
{
    struct meta_value merges = weight_file_meta(f, "tokenizer.ggml.merges"),
                      scores = weight_file_meta(f, "tokenizer.ggml.scores"), v;
    bool prefix;
    int status = merges.type == META_ARRAY && merges.len ? read_gguf_merges(t, merges, e)
                                                         : rank_by_score(t, scores, e);

    if (status < 0)
        return status;
    for (int i = 0; i < t->n_added; i++)
        t->added[i].rstrip = t->added[i].control &&
                             phi_strips(t, t->added[i].text, t->added[i].len);
    v = weight_file_meta(f, "tokenizer.ggml.add_bos_token");
    t->add_bos = v.type == META_BOOL ? v.i != 0 : true;
    t->fuse_unknown = true;
    v = weight_file_meta(f, "tokenizer.ggml.add_space_prefix");
    prefix = v.type != META_BOOL || v.i;
    if ((status = build_decode_words(t, prefix, e)) < 0 ||
        (prefix && (status = build_step(t, NORMALIZE_PREPEND, "", WORD_MARK, e)) < 0))
        return status;
    return build_step(t, NORMALIZE_REPLACE, " ", WORD_MARK, e);
}

/* Bytes, as integers of 8 bits. */
static int read_gguf_charsmap(struct tokenizer *t, struct meta_value map, struct error *e)
{
    unsigned char *bytes = mem_alloc(map.len + 1, 1);
    int status;

    if (!bytes)
        return build_no_memory(e);
    for (size_t i = 0; i < map.len; i++)
        bytes[i] = (unsigned char)meta_at(&map, i).i;
    status = charsmap_read(&t->charsmap, bytes, map.len, e);
    mem_free(bytes);
    return status < 0 ? status : build_step(t, NORMALIZE_CHARSMAP_LONG, "", "", e);
}

/* A flag of the file's. */
static bool flag(const struct weight_file *f, const char *key, bool otherwise)
{
    struct meta_value v = weight_file_meta(f, key);

    return v.type == META_BOOL ? v.i != 0 : otherwise;
}

/* Scores of a unigram model. Text that users may write (types normal and user-defined) is split by
 * them; the worst is that of the normal ones, as in SentencePiece. */
static int read_gguf_scores(struct tokenizer *t, const struct weight_file *f, struct error *e)
{
    struct meta_value scores = weight_file_meta(f, "tokenizer.ggml.scores"),
                      types = weight_file_meta(f, "tokenizer.ggml.token_type");
    bool any = false;

    if (scores.type != META_ARRAY || scores.len < (size_t)t->n_pieces)
        return error_set(e, ERR_MODEL,
                         "%s: the tokenizer has no scores (tokenizer.ggml.scores) for all tokens",
                         weight_file_path(f));
    if (build_scores(t, e) < 0)
        return ERR_MEMORY;
    for (int i = 0; i < t->n_pieces; i++) {
        int64_t type = types.type == META_ARRAY && (size_t)i < types.len
                           ? meta_at(&types, (size_t)i).i
                           : GGUF_NORMAL;
        double score = meta_at(&scores, (size_t)i).f;

        t->scores[i] = type == GGUF_USER ? 0.0 : isnan(score) ? -INFINITY : score;
        if (type == GGUF_NORMAL && (!any || t->scores[i] < t->worst)) {
            t->worst = t->scores[i];
            any = true;
        }
    }
    return 0;
}

/* SentencePiece's other kind, unigram: the file contains its character map. */
static int read_gguf_unigram(struct tokenizer *t, const struct weight_file *f, struct error *e)
{
    struct meta_value map = weight_file_meta(f, "tokenizer.ggml.precompiled_charsmap");
    bool prefix = flag(f, "tokenizer.ggml.add_space_prefix", true);
    bool collapse = flag(f, "tokenizer.ggml.remove_extra_whitespaces", false);
    int status = read_gguf_scores(t, f, e);

    if (status == 0 && map.type == META_ARRAY)
        status = read_gguf_charsmap(t, map, e);
    if (status < 0)
        return status;
    t->add_bos = flag(f, "tokenizer.ggml.add_bos_token", false);
    t->fuse_unknown = true;
    if ((collapse && (status = build_step(t, NORMALIZE_COLLAPSE, "", "", e)) < 0) ||
        (status = build_decode_words(t, prefix || collapse, e)) < 0 ||
        (prefix && (status = build_step(t, NORMALIZE_PREPEND, "", WORD_MARK, e)) < 0))
        return status;
    return build_step(t, NORMALIZE_REPLACE, " ", WORD_MARK, e);
}

/* tokenizer.ggml.model: a row for each supported kind. */
static const struct gguf_kind {
    const char *name;
    int (*read)(struct tokenizer *t, const struct weight_file *f, struct error *e);
} gguf_kinds[] = {
    {"llama", read_gguf_sentencepiece},
    {"gpt2", read_gguf_byte_level},
    {"t5", read_gguf_unigram},
};

static const struct gguf_kind *find_kind(struct meta_value model)
{
    for (size_t i = 0; i < sizeof gguf_kinds / sizeof *gguf_kinds; i++)
        if (model.len == strlen(gguf_kinds[i].name) &&
            memcmp(model.s, gguf_kinds[i].name, model.len) == 0)
            return &gguf_kinds[i];
    return NULL;
}

int tokenizer_load_gguf(struct tokenizer *t, const struct weight_file *f, struct error *e)
{
    struct meta_value model = weight_file_meta(f, "tokenizer.ggml.model"),
                      tokens = weight_file_meta(f, "tokenizer.ggml.tokens"), v;
    const struct gguf_kind *kind;
    size_t pool = 0;
    int status;

    if (model.type != META_STRING || tokens.type != META_ARRAY)
        return error_set(e, ERR_MODEL, "%s: no tokenizer inside (tokenizer.ggml.tokens)",
                         weight_file_path(f));
    if (!(kind = find_kind(model)))
        return error_set(e, ERR_MODEL,
                         "%s: the tokenizer '%.*s' is not supported; 'llama' and 't5' "
                         "(SentencePiece) and 'gpt2' (byte-level) are",
                         weight_file_path(f), (int)(model.len < 40 ? model.len : 40), model.s);
    if (tokens.len == 0 || tokens.len > TOKENIZER_MAX_IDS)
        return error_set(e, ERR_MODEL, "%s: the vocabulary has %zu tokens; 1 to %d are possible",
                         weight_file_path(f), tokens.len, TOKENIZER_MAX_IDS);
    for (size_t i = 0; i < tokens.len; i++) {
        v = meta_at(&tokens, i);
        if (v.type != META_STRING || v.len > INT_MAX / 2)
            return error_set(e, ERR_MODEL, "%s: token %zu is no text", weight_file_path(f), i);
        pool += v.len + 1;
    }
    status = build_tables(t, (int)tokens.len, tokens.len, pool + 64, e);
    if (status == 0)
        status = read_gguf_pieces(t, tokens, weight_file_meta(f, "tokenizer.ggml.token_type"), e);
    if (status == 0)
        status = kind->read(t, f, e);
    if (status < 0)
        return status;
    v = weight_file_meta(f, "tokenizer.ggml.unknown_token_id");
    if (v.type == META_INT && v.i >= 0 && v.i < t->n_pieces)
        t->unknown = (int)v.i;
    v = weight_file_meta(f, "tokenizer.ggml.bos_token_id");
    t->bos = v.type == META_INT && v.i >= 0 && v.i < t->n_pieces ? (int)v.i : -1;
    return 0;
}
