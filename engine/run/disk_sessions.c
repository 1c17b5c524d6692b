/* Sessions and the prompt cache on disk: the prefix of a prompt is read if the cache has more of it
 * than the session, one piece between two passes, so that other answers continue; and computed
 * state is written, one piece at a time, after prefill, after an answer, and when idle. A model
 * whose layers keep all rows can continue after any token of a piece; one with recurrent state or
 * rings only at a stored copy of that: where messages start (checkpoints.h) and where answers
 * ended. Engine thread. */
#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/device/kv_type.h"
#include "engine/file/weights_digest.h"
#include "engine/model/hparams_digest.h"
#include "engine/run/internal.h"
#include "engine/adapter/control.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define TOLD ((uint64_t)256 << 20) /* weights that are read in no time: no message */
#define GAIN_LEAST 32              /* fewer tokens are computed faster than read */
#define TAIL_LEAST 16              /* fewer tokens after the last whole piece are not written */
#define WAIT_MS 20
#define FINISH_NS (5 * CLOCK_SECOND)

/* ---- what the state depends on ---- */

static bool is_unwanted(void *ctx)
{
    return engine_given_up(ctx);
}

static void tell_hashing(void *ctx)
{
    engine_notice(ctx,
                  "the weights are read once from end to end: their hash says which files of the "
                  "prompt cache are theirs");
}

/* Hash of everything except the tokens, the rotary variant, the adapters' strengths and the edits
 * of experts, which each piece stores itself. Kernels, threads, placement and chunks are not in it:
 * they do not change a bit. */
static int make_key(struct engine *g, char key[DIGEST_HEX], struct error *e)
{
    const struct engine_config *c = &g->config;
    const struct stop stop = {is_unwanted, g};
    char weights[DIGEST_HEX], settings[240], least[32] = "";
    uint64_t adapters = adapters_hash(g->adapters);
    struct digest d;
    uint64_t bytes = g->model->packed_bytes + g->model->mapped_bytes;
    int rc = weights_digest(g->model->file, c->prompt_cache, bytes < TOLD ? NULL : tell_hashing, g,
                            &stop, weights, e);

    if (rc < 0)
        return rc;
    if (c->experts_least > 0)
        snprintf(least, sizeof least, " least %.9g", (double)c->experts_least);
    snprintf(
        settings, sizeof settings,
        "moetop %s state %d convert %d exact %d library %d deferred %d k %d v %d model %016llx%s",
        MOETOP_VERSION, SEGMENT_FORMAT, c->convert, c->exact, c->float_library, c->defer_experts,
        (int)c->kv_k, (int)c->kv_v, (unsigned long long)g->model->hash, least);
    digest_init(&d, DIGEST_SHA256, 0);
    digest_add(&d, weights, DIGEST_HEX);
    digest_add(&d, settings, strlen(settings) + 1);
    hparams_digest(&d, &g->model->hp);
    digest_add(&d, &adapters, sizeof adapters);
    if (g->control)
        digest_add(&d, &g->control->hash, sizeof g->control->hash);
    for (int l = 0; l < g->kv.n_layers; l++) {
        const struct kv_layer *k = &g->kv.layers[l];
        uint64_t sizes[] = {k->row_bytes, k->fixed_bytes, k->copy_bytes, (uint64_t)k->window};

        digest_add(&d, sizes, sizeof sizes);
    }
    digest_end(&d, key);
    return key[0] ? 0 : digest_failed("the prompt cache", e);
}

static bool keeps_all(const struct kv_layer *k)
{
    return k->row_bytes && !k->ring;
}

static void say(void *ctx, const char *line)
{
    engine_notice(ctx, "%s", line);
}

int disk_sessions_open(struct engine *g, struct error *e)
{
    struct segment_shape *shape = &g->stored.shape;
    uint64_t weights = g->model->packed_bytes + g->model->mapped_bytes;
    int rc;

    if (!g->config.prompt_cache ||
        (g->config.prompt_cache_weights && weights > g->config.prompt_cache_weights))
        return 0;
    for (int l = 0; l < g->kv.n_layers; l++)
        shape->row_bytes += keeps_all(&g->kv.layers[l]) ? g->kv.layers[l].row_bytes : 0;
    shape->copy_bytes = g->kv.all_copies;
    shape->routes_bytes = history_footprint(&g->model->hp, 1);
    shape->n_vocab = g->model->hp.n_vocab;
    if ((rc = make_key(g, g->stored.key, e)) == 0)
        rc = prompt_cache_open(&g->stored.cache, g->config.prompt_cache,
                               g->config.prompt_cache_bytes, g->stored.key, say, g, e);
    if (rc < 0 && rc != ERR_CANCELLED && g->config.prompt_cache_optional) {
        engine_notice(g, "chats are not kept warm: %s", e->text);
        rc = 0;
    }
    return rc == ERR_IO ? error_prefix(e, "--prompt-cache") : rc;
}

void disk_sessions_stop(struct engine *g, const char *why)
{
    if (!g->stored.cache || g->stored.stopped)
        return;
    g->stored.stopped = true;
    for (int i = 0; i < g->n_sessions; i++)
        if (g->sessions[i])
            g->sessions[i]->stored.due = false;
    engine_notice(g, "%s from here on: %s",
                  g->config.prompt_cache_optional ? "chats are not kept warm"
                                                  : "the prompt cache on the disk is left alone",
                  why);
}

void disk_sessions_distrust(struct engine *g)
{
    for (int i = 0; i < g->n_sessions; i++)
        if (g->sessions[i] && turn_running(g->sessions[i]))
            disk_sessions_cancel(g->sessions[i]);
    if (!g->stored.cache)
        return;
    disk_sessions_stop(g, "what a device that computes wrongly had a part in is removed");
    prompt_cache_withdraw(g->stored.cache);
}

/* ---- reading ---- */

/* Hash of the adapters' strengths and the edits of experts; 0: neither. */
static uint64_t strengths_of(const struct session *s)
{
    size_t n = (size_t)adapters_count(s->engine->adapters);

    uint64_t h = n ? hash_bytes(HASH_START, s->strengths, n * sizeof *s->strengths) : 0;

    return s->edits ? hash_add(h, s->edits->hash) : h;
}

/* The place of the first piece of a session's state. */
static struct segment_place place_of(const struct session *s)
{
    struct segment_place p = {.variant = (int)s->variant, .strengths = strengths_of(s)};

    memcpy(p.key, s->engine->stored.key, DIGEST_HEX);
    return p;
}

/* How many tokens of a session can be read from disk, up to limit, and the last piece for it. */
static int reach(struct session *s, int limit, char last[DIGEST_HEX])
{
    struct engine *g = s->engine;
    struct segment_place p = place_of(s);
    char name[DIGEST_HEX] = "";
    int end = 0, at = 0, n;
    bool copies = g->kv.all_copies > 0;

    do {
        const int *ids = s->tokens + at;

        p.copy = copies;
        n = prompt_cache_find(g->stored.cache, &p, ids, limit - at, name);
        if (n > 0) {
            end = at + n;
            memcpy(last, name, DIGEST_HEX);
        }
        p.copy = false;
        if (copies)
            n = prompt_cache_find(g->stored.cache, &p, ids, limit - at, name);
        at += n;
        memcpy(p.parent, name, DIGEST_HEX);
    } while (n == SEGMENT_TOKENS && at < limit);
    return end;
}

void disk_sessions_choose(struct session *s)
{
    struct engine *g = s->engine;
    struct disk_run *r = &s->run.stored;
    int end;

    *r = (struct disk_run){0};
    if (!g->stored.cache || g->stored.stopped || g->uncounted || g->forward.imposed)
        return;
    end = reach(s, s->run.end - 1, r->last);
    if (end - s->n_tokens < GAIN_LEAST || (s->run.leader && end - s->run.lead < SEGMENT_TOKENS))
        return;
    s->run.leader = NULL;
    r->end = end;
}

bool disk_sessions_reading(const struct session *s)
{
    return turn_running(s) && s->run.stored.end > 0;
}

/* Writes the rows of the piece from token `from` on into the session. */
static int put_rows(struct session *s, const struct segment *p, int from, int n, struct error *e)
{
    struct kv *kv = &s->engine->kv;
    const uint8_t *at = p->rows;
    int rc = 0;

    for (int l = 0; l < kv->n_layers && rc >= 0 && from < n; l++) {
        size_t row = kv->layers[l].row_bytes;

        if (!keeps_all(&kv->layers[l]))
            continue;
        rc = kv_rows_write(kv, s->number, l, p->place.first + from, n - from,
                           at + (size_t)from * row, e);
        at += (size_t)p->place.n * row;
    }
    return rc;
}

static int put_copy(struct session *s, const struct segment *p, int pos, struct error *e)
{
    struct kv *kv = &s->engine->kv;
    const uint8_t *at = p->copy;
    int rc = 0;

    for (int l = 0; l < kv->n_layers && rc >= 0; at += kv->layers[l++].copy_bytes)
        if (kv->layers[l].copy_bytes)
            rc = kv_copy_write(kv, s->number, l, pos, at, e);
    return rc;
}

/* Sets the session's position to pos. */
static void stands(struct session *s, int pos)
{
    struct turn_run *r = &s->run;
    int more = pos - s->n_tokens;

    s->n_tokens = pos;
    s->counted = s->counted < pos ? pos : s->counted;
    r->done.cached_tokens += more;
    r->done.stored_tokens += more;
    r->done.recomputed_tokens = r->kept > pos ? r->kept - pos : 0;
    if (s->checkpoints)
        checkpoints_take(s->checkpoints, pos, true);
    if (s != s->engine->session)
        return;
    s->engine->t.cached_tokens = r->done.cached_tokens;
    s->engine->t.recomputed_tokens = r->done.recomputed_tokens;
}

/* Copies a verified piece into the session. */
static int take_piece(struct session *s, const struct segment *p, int n, struct error *e)
{
    struct engine *g = s->engine;
    size_t routes = g->stored.shape.routes_bytes;
    int first = p->place.first, rc, held = kv_rows_held(&g->kv, s->number);

    if (!g->kv.all_copies)
        held = s->n_tokens;
    rc = put_rows(s, p, held > first ? held - first : 0, n, e);
    if (rc >= 0 && p->copy)
        rc = put_copy(s, p, first + n, e);
    if (rc < 0)
        return rc;
    if (routes)
        memcpy((uint8_t *)s->routed + (size_t)first * routes, p->routes, (size_t)n * routes);
    if (p->copy || !g->kv.all_copies)
        stands(s, first + n > s->n_tokens ? first + n : s->n_tokens);
    return 0;
}

/* The next piece towards run.stored.end; returns how many of its tokens are usable; 0: the file no
 * longer exists. */
static int next_piece(const struct session *s, char name[DIGEST_HEX])
{
    const struct disk_run *r = &s->run.stored;
    struct engine *g = s->engine;
    struct segment_place p = place_of(s);
    int left = r->end - r->at;

    /* the last one of a model with copies */
    if (g->kv.all_copies && left <= SEGMENT_TOKENS) {
        memcpy(name, r->last, DIGEST_HEX);
        return left;
    }
    memcpy(p.parent, r->parent, DIGEST_HEX);
    return prompt_cache_find(g->stored.cache, &p, s->tokens + r->at,
                             left < SEGMENT_TOKENS ? left : SEGMENT_TOKENS, name);
}

/* Stops reading; drops what is incomplete from the session. */
static void end_reading(struct session *s)
{
    s->run.stored.end = 0;
    kv_cut(&s->engine->kv, s->number, s->n_tokens);
    if (s->checkpoints)
        s->n_tokens = checkpoints_resume(s->checkpoints, s->n_tokens);
    s->run.begin = clock_now();
}

/* Reads one piece, or skips it if the session has it. */
static void read_piece(struct session *s)
{
    struct engine *g = s->engine;
    struct disk_run *r = &s->run.stored;
    char name[DIGEST_HEX] = "";
    uint8_t *data = NULL;
    struct segment p;
    struct error e = {0};
    int n = next_piece(s, name), rc = 0;
    bool whole = n == SEGMENT_TOKENS && r->at + n < r->end;

    if (n > 0 && (r->at + n > s->n_tokens || !whole) &&
        (rc = prompt_cache_read(g->stored.cache, name, &g->stored.shape, &data, &p, &e)) == 0)
        rc = take_piece(s, &p, n, &e);
    mem_free(data);
    if (rc < 0)
        log_write(LOG_LEVEL_WARNING, "prompt cache: %s", e.text);
    if (rc == 0 && n > 0)
        prompt_cache_use(g->stored.cache, name);
    r->at += n;
    memcpy(r->parent, name, DIGEST_HEX);
    if (rc < 0 || !whole)
        end_reading(s);
}

bool disk_sessions_take(struct engine *g)
{
    bool any = false;

    for (int i = 0; i < g->n_sessions; i++) {
        struct session *s = g->sessions[i];

        if (!s || !disk_sessions_reading(s))
            continue;
        read_piece(s);
        any |= disk_sessions_reading(s);
    }
    return any;
}

void disk_sessions_cancel(struct session *s)
{
    if (s->run.stored.end)
        end_reading(s);
}

/* ---- writing ---- */

static int get_rows(struct session *s, const struct segment *p, struct error *e)
{
    struct kv *kv = &s->engine->kv;
    uint8_t *at = p->rows;
    int rc = 0;

    for (int l = 0; l < kv->n_layers && rc >= 0; l++) {
        if (!keeps_all(&kv->layers[l]))
            continue;
        rc = kv_rows_read(kv, s->number, l, p->place.first, p->place.n, at, e);
        at += (size_t)p->place.n * kv->layers[l].row_bytes;
    }
    return rc;
}

/* Gets the state after the last token: from a copy made there, or the current state. */
static int get_copy(struct session *s, const struct segment *p, struct error *e)
{
    struct kv *kv = &s->engine->kv;
    int pos = p->place.first + p->place.n, rc = 0;
    const void *copy = checkpoints_copy(s->checkpoints, pos);
    uint8_t *at = p->copy;

    if (copy) {
        memcpy(at, copy, kv->all_copies);
        return 0;
    }
    if (!kv_copies(kv, s->number, pos))
        return error_set(e, ERR_DEVICE, "nothing stands after %d tokens", pos);
    for (int l = 0; l < kv->n_layers && rc >= 0; at += kv->layers[l++].copy_bytes)
        if (kv->layers[l].copy_bytes)
            rc = kv_copy_read(kv, s->number, l, pos, at, e);
    return rc;
}

/* Assembles a piece in memory and starts writing it. false: not possible. */
static bool write_piece(struct session *s, const struct segment_place *place)
{
    struct engine *g = s->engine;
    size_t bytes = segment_bytes(&g->stored.shape, place->n, place->copy),
           routes = g->stored.shape.routes_bytes;
    uint8_t *data = mem_alloc(bytes, 1);
    struct segment p;
    struct error e;

    if (!data)
        return false;
    segment_begin(data, &g->stored.shape, place, &p);
    if (get_rows(s, &p, &e) < 0 || (p.copy && get_copy(s, &p, &e) < 0)) {
        mem_free(data);
        return false;
    }
    if (routes) /* a dense model has none */
        memcpy(p.routes, (uint8_t *)s->routed + (size_t)place->first * routes,
               (size_t)place->n * routes);
    prompt_cache_write(g->stored.cache, data, bytes, place);
    return true;
}

/* Iterates over a session's pieces. */
struct chain {
    struct session *session;
    struct segment_place place; /* of the current piece */
    char name[DIGEST_HEX];
};

static void chain_begin(struct chain *c, struct session *s)
{
    *c = (struct chain){.session = s, .place = place_of(s)};
}

/* The piece of the next n tokens. */
static const struct segment_place *chain_piece(struct chain *c, int n, bool copy)
{
    c->place.n = n;
    c->place.copy = copy;
    c->place.ids = c->session->tokens + c->place.first;
    segment_name(&c->place, c->name);
    return &c->place;
}

static void chain_pass(struct chain *c)
{
    memcpy(c->place.parent, c->name, DIGEST_HEX);
    c->place.first += c->place.n;
}

/* Tokens whose rows can be written. */
static int whole_rows(const struct session *s)
{
    int held = kv_rows_held(&s->engine->kv, s->number);

    return held < s->n_tokens ? held : s->n_tokens;
}

/* Writes a copy at pos if wanted and possible: 1 written, 0 it exists or is impossible. */
static bool write_mark(struct chain *c, int pos)
{
    struct session *s = c->session;
    int n = pos - c->place.first;

    if (n < 1 || n > SEGMENT_TOKENS || pos > whole_rows(s) ||
        (!checkpoints_copy(s->checkpoints, pos) && !kv_copies(&s->engine->kv, s->number, pos)))
        return false;
    chain_piece(c, n, true);
    return !prompt_cache_has(s->engine->stored.cache, c->name) && write_piece(s, &c->place);
}

static bool write_marks(struct chain *c)
{
    struct session *s = c->session;

    for (int i = 0; i < s->stored.n_marks; i++)
        if (write_mark(c, s->stored.marks[i]))
            return true;
    return !turn_running(s) && write_mark(c, s->n_tokens);
}

/* Writes the next piece that is not on disk. false: all are. */
static bool write_next(struct session *s)
{
    struct prompt_cache *cache = s->engine->stored.cache;
    int rows = whole_rows(s);
    struct chain c;

    chain_begin(&c, s);
    for (;;) {
        if (s->checkpoints && write_marks(&c))
            return true;
        if (c.place.first + SEGMENT_TOKENS > rows)
            break;
        chain_piece(&c, SEGMENT_TOKENS, false);
        if (!prompt_cache_has(cache, c.name))
            return write_piece(s, &c.place);
        chain_pass(&c);
    }
    if (s->checkpoints || turn_running(s) || rows - c.place.first < TAIL_LEAST)
        return false;
    chain_piece(&c, rows - c.place.first, false);
    return !prompt_cache_has(cache, c.name) && write_piece(s, &c.place);
}

/* Marks the whole pieces of a session as used, the first ones as most recent. */
static void use_all(struct session *s)
{
    struct prompt_cache *cache = s->engine->stored.cache;
    int n = whole_rows(s) / SEGMENT_TOKENS;
    char(*names)[DIGEST_HEX] = mem_alloc((size_t)n + 1, sizeof *names);
    struct chain c;

    chain_begin(&c, s);
    for (int i = 0; names && i < n; i++) {
        chain_piece(&c, SEGMENT_TOKENS, false);
        memcpy(names[i], c.name, DIGEST_HEX);
        chain_pass(&c);
    }
    while (names && n-- > 0)
        prompt_cache_use(cache, names[n]);
    mem_free(names);
}

void disk_sessions_due(struct session *s)
{
    const struct prompt *p = &s->run.turn->prompt;
    const struct engine *g = s->engine;
    int most = g->config.prompt_cache_tokens;

    if ((most && s->n_tokens > most) || s->run.pooling) /* no chat continues such a text */
        return;
    if (!g->stored.cache || g->stored.stopped || g->uncounted || g->forward.imposed)
        return;
    s->stored.due = true;
    s->stored.n_marks = p->n_marks;
    memcpy(s->stored.marks, p->marks, sizeof p->marks);
}

/* Writes for the next session that has something unwritten. true: there was one. */
static bool step(struct engine *g, bool idle)
{
    for (int i = 0; i < g->n_sessions; i++) {
        struct session *s = g->sessions[i];

        if (!s || !s->stored.due || disk_sessions_reading(s))
            continue;
        if (prompt_cache_busy(g->stored.cache, idle ? WAIT_MS : 0))
            return true;
        s->stored.due = prompt_cache_writable(g->stored.cache) && write_next(s);
        if (s->stored.due)
            return true;
        use_all(s);
    }
    return false;
}

bool disk_sessions_step(struct engine *g, bool idle)
{
    bool more;

    if (!g->stored.cache)
        return false;
    more = step(g, idle);
    g->t.stored = prompt_cache_look(g->stored.cache);
    return more;
}

void disk_sessions_close(struct engine *g)
{
    uint64_t end = clock_now() + FINISH_NS;

    while (clock_now() < end && disk_sessions_step(g, true))
        ;
    prompt_cache_close(g->stored.cache);
    g->stored.cache = NULL;
}
