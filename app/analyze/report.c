/* See report.h: the table. */
#include "app/analyze/report.h"

#include "engine/base/utf8.h"

#include <inttypes.h>
#include <string.h>

#define MIB ((double)(1 << 20))

static void print_parts(const struct analysis_count *c, FILE *out)
{
    fprintf(out, "\n%-18s %15s %7s %15s\n", "parameters", "all", "", "a token");
    for (int p = 0; p < ANALYSIS_PART_COUNT; p++)
        if (c->parts[p])
            fprintf(out, "  %-16s %15" PRIu64 " %5.1f %% %15" PRIu64 "\n",
                    analysis_part_name((enum analysis_part)p), c->parts[p],
                    100.0 * (double)c->parts[p] / (double)c->total, c->active_parts[p]);
    if (c->tied_head)
        fprintf(out, "  %-16s %15s %7s %15" PRIu64 "\n", "head", "(embedding)", "", c->tied_head);
    fprintf(out, "  %-16s %15" PRIu64 " %7s %15" PRIu64 "\n", "together", c->total, "", c->active);
    if (c->experts)
        fprintf(out, "  one expert of a layer has %" PRIu64 "; %d of %d are taken\n", c->one_expert,
                c->used, c->experts);
}

static void print_types(const struct analysis_count *c, FILE *out)
{
    fprintf(out, "\nbytes by type%s\n", c->from_config ? " (by config.json; no weights here)" : "");
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (c->type_bytes[t])
            fprintf(out, "  %-16s %15" PRIu64 " %5.1f %%\n", dtype_info((enum dtype)t)->word,
                    c->type_bytes[t], 100.0 * (double)c->type_bytes[t] / (double)c->file_bytes);
    fprintf(out, "  %-16s %15" PRIu64 "\n", "together", c->file_bytes);
}

static void print_dtypes(const struct analysis_count *c, FILE *out)
{
    double flops = analysis_matrix_flops(c);

    fprintf(out, "\n%-18s %12s %16s %13s\n", "if it were held in", "memory, MiB", "a token reads",
            "flops a byte");
    for (int t = 0; t < ANALYSIS_DTYPES; t++) {
        uint64_t token = analysis_token_bytes(c, t);

        fprintf(out, "  %-16s %12.1f %12.1f MiB %13.2f\n", analysis_dtypes[t].name,
                (double)analysis_memory(c, t) / MIB, (double)token / MIB, flops / (double)token);
    }
}

static void print_context(const struct analysis *a, FILE *out)
{
    const struct hparams *hp = &a->model->hp;
    int most = hp->context_max ? hp->context_max : a->context;
    int at[] = {1, 1024, a->context, most};

    fprintf(out, "\n%-18s %14s %14s\n", "by context", "attention", "KV cache, F16");
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        if (at[i] <= most && (i == 0 || at[i] > at[i - 1]))
            fprintf(out, "  %-9d tokens %9.4f GFLOP %10.1f MiB\n", at[i],
                    analysis_attention_flops(hp, at[i]) * 1e-9,
                    (double)analysis_kv_bytes(hp, at[i]) / MIB);
    fprintf(out,
            "  products with weights: %.4f GFLOP a token; a token more: %" PRIu64
            " bytes of KV cache\n",
            analysis_matrix_flops(&a->count) * 1e-9, analysis_kv_token(hp));
}

static void print_machine(const struct analysis_machine *m, FILE *out)
{
    fprintf(out, "\nhere\n  memory reads %.1f GB/s with %d thread%s\n", m->bandwidth * 1e-9,
            m->threads, m->threads == 1 ? "" : "s");
    if (m->why.code) {
        fprintf(out, "  not opened: %s\n", m->why.text);
        return;
    }
    if (m->in_cache)
        fprintf(out, "  its weights lie in the processor's cache: memory does not bound it\n");
    else if (m->rate > 0)
        fprintf(out, "  a token reads %.1f MiB behind %d others: at most %.1f tok/s\n",
                (double)m->token_bytes / MIB, ANALYSIS_DEPTH, m->rate);
    if (m->n_plans)
        fprintf(out, "  %s: %.0f MiB%s\n", m->device, (double)m->device_memory / MIB,
                m->device_shares ? ", the host's" : "");
    for (int i = 0; i < m->n_plans; i++) {
        const struct analysis_plan *p = &m->plans[i];

        fprintf(out, "  --place %-14s %9.1f MiB there, %s%s%s\n", p->spec, (double)p->bytes / MIB,
                p->fits ? "fits" : "does not fit", p->note[0] ? ": " : "", p->note);
    }
}

void analysis_print(const struct analysis *a, FILE *out)
{
    const struct model *m = a->model;

    fprintf(out, "%s: %s%s%s, %d layers, width %d, vocabulary %d, trained for %d tokens\n", m->name,
            m->family, m->packing_method[0] ? ", packed by " : "", m->packing_method,
            m->hp.n_layers, m->hp.hidden, m->hp.n_vocab, m->hp.context_max);
    print_parts(&a->count, out);
    print_types(&a->count, out);
    print_dtypes(&a->count, out);
    print_context(a, out);
    print_machine(&a->machine, out);
    fprintf(out, "\n");
    for (int i = 0; i < a->hints.n; i++)
        fprintf(out, "* %s\n", a->hints.at[i].text);
}

void analysis_print_tensors(const struct analysis_by_tensors *by, const char *why, FILE *out)
{
    fprintf(out, "%s: %s%s", by->name, *by->architecture ? "architecture " : "",
            *by->architecture ? by->architecture : "an architecture without a name");
    if (by->layers)
        fprintf(out, ", %d layers", by->layers);
    fprintf(out, ": by its tensors' names\n");
    print_parts(&by->count, out);
    if (by->strange)
        fprintf(out, "  not among them: %" PRIu64 " in %d tensors of no known kind (%s)\n",
                by->strange_values, by->strange, by->strange_name);
    print_types(&by->count, out);
    print_dtypes(&by->count, out);
    fprintf(out, "\n* not opened: %s\n", why);
}
