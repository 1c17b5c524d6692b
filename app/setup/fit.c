/* The table of --fit. Any thread. The weights are counted by the loader itself (model_inspect) and
 * the rest by the engine (engine_footprint), the two that will allocate, so the table is exact: an
 * estimate might refuse what would have worked. */
#include "app/setup/fit.h"

#include "app/common/system_sample.h"
#include "engine/adapter/control.h"
#include "engine/base/digest.h"
#include "engine/base/mem.h"
#include "engine/device/state.h"
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"
#include "engine/run/medusa_heads.h"

#include <inttypes.h>
#include <string.h>

/* Measured: between 0.5 and 2.2 MiB for 35 models of 25 families, with one session and with four.
 */
#define COMPUTING ((uint64_t)3 << 19)

/* program: memory of this process now; 0: unknown. */
static uint64_t free_now(uint64_t *program)
{
    struct system *s = system_new("");
    struct system_sample *now = mem_alloc(1, sizeof *now); /* too large for the stack */
    uint64_t free_bytes = UINT64_MAX;

    *program = 0;
    if (!s || !now)
        goto out;
    system_read(s, now);
    *program = now->rss == SYSTEM_UNKNOWN ? 0 : now->rss;
    free_bytes = now->memory_available;
    if (now->memory_limit != SYSTEM_UNKNOWN) {
        uint64_t used = now->rss == SYSTEM_UNKNOWN ? 0 : now->rss;
        uint64_t left = now->memory_limit > used ? now->memory_limit - used : 0;

        if (now->memory_left < left) /* other processes are in the group as well */
            left = now->memory_left;
        if (left < free_bytes)
            free_bytes = left;
    }
out:
    system_free(s);
    mem_free(now);
    return free_bytes;
}

uint64_t fit_available(void)
{
    uint64_t program;

    return free_now(&program);
}

/* A run names its prompt's cached state by a digest, and opens libcrypto for it: 4 MiB. */
static void use_digest(void)
{
    char name[DIGEST_HEX];
    struct digest d;

    digest_init(&d, DIGEST_SHA256, 0);
    digest_end(&d, name);
}

/* The memory of this process and the free memory. A model's vocabulary may be larger than the rest
 * of the program, and its size is known only after loading it: so it is loaded for this, but only
 * for the table; a yes or no is not worth the time. */
static void measure_program(const struct model *m, bool vocabulary, struct fit *out)
{
    struct tokenizer *t = NULL;

    if (vocabulary) {
        tokenizer_load(&t, m->file, NULL); /* a model without a tokenizer: nothing to count */
        use_digest();
    }
    out->available = free_now(&out->program);
    tokenizer_free(t);
}

/* Layers with a ring buffer. */
static void measure_rings(const struct hparams *hp, const struct engine_config *c, struct fit *out)
{
    const struct state_config state = {c->kv_k, c->kv_v, out->context, out->ubatch};

    for (int l = 0; l < hp->n_layers; l++) {
        const struct mixer_shape *m = &hparams_layer(hp, l)->mixer;

        if (!state_is_ring(m, &state))
            continue;
        out->ring_layers++;
        out->ring_room = state_room(m, &state) > out->ring_room ? state_room(m, &state)
                                                                : out->ring_room;
    }
}

/* The draft model's memory is added to that of this one. */
static int measure_draft(const struct engine_config *c, struct fit *out, struct error *e)
{
    struct engine_config of = engine_draft_config(c, out->context);
    struct model_footprint weights;
    struct model *m;
    struct fit own;
    int rc;

    if (!c->drafting.model || !strcmp(c->drafting.type, "none") ||
        !strcmp(c->drafting.type, "lookup"))
        return 0;
    if ((rc = fit_inspect(&of, &m, &weights, e)) == 0)
        rc = fit_of_model(&of, m, &weights, &own, e);
    model_free(m);
    if (rc < 0)
        return error_prefix(e, "-md");
    out->draft = own.total - own.computing; /* counted only once */
    out->total += out->draft;
    return 0;
}

/* Memory of the Medusa heads. */
static int measure_heads(const struct engine_config *c, const struct model *m, struct fit *out,
                         struct error *e)
{
    const struct drafting *d = &c->drafting;
    bool drafts = !strcmp(d->type, "medusa") || !strcmp(d->type, "auto");
    int rc;

    if (!drafts || (!d->medusa.path && !d->medusa.n))
        return 0;
    if ((rc = medusa_heads_footprint(m, &d->medusa, &out->heads, e)) == 0)
        out->total += out->heads;
    return rc;
}

/* Memory of the multi-token prediction block, if it drafts. */
static int measure_mtp(const struct engine_config *c, const struct model *m, struct fit *out,
                       struct error *e)
{
    struct engine_config of = engine_mtp_config(c, m, out->context);
    struct model_footprint weights;
    struct model *block;
    struct fit own;
    int rc;

    if (!m->has_mtp || !engine_mtp_wanted(c))
        return 0;
    if ((rc = fit_inspect(&of, &block, &weights, e)) == 0)
        rc = fit_of_model(&of, block, &weights, &own, e);
    model_free(block);
    if (rc == ERR_MODEL && strcmp(c->drafting.type, "mtp") != 0)
        return 0; /* it was not requested, so it does not draft */
    if (rc < 0)
        return rc;
    out->mtp = own.total - own.computing + (uint64_t)out->sessions * engine_mtp_states(m);
    out->total += out->mtp;
    return 0;
}

/* vocabulary: see measure_program. */
static int measure(const struct engine_config *c, bool vocabulary, struct fit *out, struct error *e)
{
    struct model_footprint weights;
    struct control_vectors *control = NULL;
    struct adapters *adapters = NULL;
    struct model *m;
    int rc = fit_inspect(c, &m, &weights, e);

    if (rc < 0)
        return rc;
    rc = adapters_open(&adapters, m, c->adapters, c->n_adapters, false, e);
    if (rc == 0 && c->n_control)
        rc = control_vectors_open(&control, m, c->control, c->n_control, c->control_first,
                                  c->control_last, e);
    if (rc == 0)
        rc = fit_of_model(c, m, &weights, out, e);
    if (rc == 0) {
        out->adapters = adapters_bytes(adapters);
        out->control = control_vectors_bytes(control);
        out->total += out->adapters + out->control;
        measure_program(m, vocabulary, out);
        out->total += out->program;
        rc = measure_draft(c, out, e);
        if (rc == 0)
            rc = measure_mtp(c, m, out, e);
        if (rc == 0)
            rc = measure_heads(c, m, out, e);
    }
    model_free(m);
    adapters_close(adapters);
    control_vectors_free(control);
    return rc;
}

int fit_inspect(const struct engine_config *c, struct model **m, struct model_footprint *weights,
                struct error *e)
{
    struct model_options mo = {.convert = c->convert,
                               .exact = c->exact,
                               .overrides = c->overrides,
                               .mtp_of = c->mtp_of,
                               .memory = c->memory,
                               .expert_cache = c->expert_cache,
                               .width = cpu_pack_width(),
                               .n_threads = 1};

    return model_inspect(m, c->model_path, &mo, weights, e);
}

/* Bytes of a table that `tokens` of them do not touch, each at most one row or rows more. */
static uint64_t beyond(uint64_t table, uint64_t tokens, uint64_t row)
{
    uint64_t touched = tokens * row;

    return touched < table ? table - touched : 0;
}

/* Bytes of tables that full contexts do not touch: of n-grams always, which are as large as the
 * experts; of tokens where memory is short: the system drops their pages and reads them again. */
static uint64_t untouched(const struct model_footprint *w, const struct fit *f)
{
    uint64_t tokens = (uint64_t)f->context * (uint64_t)f->sessions;

    return beyond(w->ngrams, tokens, w->ngram_rows) +
           (w->cache ? beyond(w->tables, tokens, w->table_row) : 0);
}

int fit_of_model(const struct engine_config *c, const struct model *m,
                 const struct model_footprint *weights, struct fit *out, struct error *e)
{
    struct engine_footprint needs;
    int rc;

    *out = (struct fit){.weights = *weights};
    if ((rc = engine_footprint(c, m, &needs, e)) < 0)
        return rc;
    out->kv = needs.kv_bytes;
    out->scratch = needs.scratch_bytes;
    out->context = needs.context;
    out->sessions = c->sessions > 1 ? c->sessions : 1;
    out->ubatch = needs.ubatch;
    out->context_max = m->hp.context_max;
    out->copies = needs.copies_bytes;
    /* experts on disk are placed one by one */
    out->apart = weights->cache ? 0 : needs.apart_bytes;
    out->untouched = untouched(weights, out);
    measure_rings(&m->hp, c, out);
    out->type = m->type;
    out->library = c->float_library && !dtype_is_quantised(m->type);
    snprintf(out->name, sizeof out->name, "%s", m->name);
    out->computing = COMPUTING;
    out->total = out->weights.packed + out->weights.mapped - out->untouched + out->weights.cache +
                 out->kv + out->scratch - out->apart + out->computing;
    return 0;
}

int fit_measure(const struct engine_config *c, struct fit *out, struct error *e)
{
    return measure(c, true, out, e);
}

int fit_measure_fast(const struct engine_config *c, struct fit *out, struct error *e)
{
    return measure(c, false, out, e);
}

uint64_t fit_needed(const struct fit *f)
{
    return f->total - f->program;
}

bool fit_fits(const struct fit *f)
{
    return fit_needed(f) <= f->available;
}

void fit_print_row(FILE *out, const char *label, uint64_t bytes, const char *note)
{
    fprintf(out, "  %-26s %10.1f MiB%s%s\n", label, (double)bytes / (1 << 20), *note ? "   " : "",
            note);
}

void fit_print(const struct fit *f, FILE *out)
{
    const struct model_footprint *w = &f->weights;
    char note[160];
    int n;

    fprintf(out, "%s, %s\n", f->name, dtype_info(f->type)->word);
    fit_print_row(out, "attention weights", w->attention, "");
    fit_print_row(out, "expert weights", w->experts, "");
    fit_print_row(out, "routers and norms", w->router_norms, "");
    fit_print_row(out, "embeddings", w->embeddings, "");
    fit_print_row(out, "output head", w->head, "");
    snprintf(note, sizeof note, "of it %.1f MiB repacked in memory, %.1f MiB used in the file",
             (double)w->packed / (1 << 20), (double)w->mapped / (1 << 20));
    if (f->untouched)
        snprintf(note + strlen(note), sizeof note - strlen(note),
                 ", %.1f MiB of that by no context: not counted", (double)f->untouched / (1 << 20));
    fit_print_row(out, "weights together", w->packed + w->mapped, note);
    if (w->on_disk) {
        snprintf(note, sizeof note, "of %.1f MiB of experts that stay on the disk (--expert-cache)",
                 (double)w->on_disk / (1 << 20));
        fit_print_row(out, "expert cache", w->cache, note);
    }
    if (f->adapters)
        fit_print_row(out, "adapters", f->adapters, "in F32, beside the weights (--lora)");
    if (f->control)
        fit_print_row(out, "control vectors", f->control, "in F32 (--control-vector)");
    n = snprintf(note, sizeof note, "at a context of %d tokens (-c), trained for %d", f->context,
                 f->context_max);
    if (f->sessions > 1)
        snprintf(note + n, sizeof note - (size_t)n, "; %d times (--parallel)", f->sessions);
    if (f->ring_layers)
        snprintf(note + strlen(note), sizeof note - strlen(note),
                 "; %d layer%s the newest %d alone", f->ring_layers,
                 f->ring_layers == 1 ? " keeps" : "s keep", f->ring_room);
    fit_print_row(out, "KV cache", f->kv, note);
    n = snprintf(note, sizeof note, "at %d tokens a step (-ub)", f->ubatch);
    if (f->copies)
        n += snprintf(note + n, sizeof note - (size_t)n, "; of it %.1f MiB copies to go back to",
                      (double)f->copies / (1 << 20));
    if (f->apart)
        snprintf(note + n, sizeof note - (size_t)n, "; %.1f MiB used with a placement alone",
                 (double)f->apart / (1 << 20));
    fit_print_row(out, "scratch", f->scratch, note);
    if (f->draft)
        fit_print_row(out, "draft model", f->draft, "weights, KV cache and scratch (-md)");
    if (f->heads)
        fit_print_row(out, "Medusa heads", f->heads, "that draft (--medusa)");
    if (f->mtp)
        fit_print_row(out, "block that drafts", f->mtp,
                      "of this file, predicts further tokens (--spec-type mtp)");
    fit_print_row(out, "code and stacks", f->computing, "that computing alone touches");
    fit_print_row(out, "this program", f->program,
                  "with its libraries and the vocabulary; held already");
    if (f->library)
        fprintf(out, "  %-26s %10s       code and copies that it makes while prompts are read\n",
                "oneDNN", "not counted");
    fit_print_devices(f, out);
    fit_print_row(out, "needed", f->total,
                  f->n_on && f->on[0].shares ? "the device's share included, weights once" : "");
    if (f->available == UINT64_MAX)
        fprintf(out, "  %-26s %10s\n", "free", "unknown");
    else
        fit_print_row(out, "free", f->available, "without swapping");
}
