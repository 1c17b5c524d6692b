/* --quantize: arguments, a progress bar on stderr if it is a terminal, the table of errors on
 * stdout. Main thread; if interrupted by a signal it leaves no files. */
#include "app/headless/quantize.h"

#include "app/common/progress.h"
#include "app/common/signals.h"
#include "app/quality/quality.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/size.h"
#include "engine/base/topology.h"
#include "engine/base/utf8.h"
#include "engine/convert/export.h"
#include "engine/layout/quantize.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool quantize_wanted(const struct options *o)
{
    return o->quantize.n > 0;
}

static int find_type(const char *word, const struct export_type **out, struct error *e)
{
    char known[240] = "";

    if ((*out = export_type_find(word)))
        return 0;
    for (int i = 0; export_type_at(i); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 export_type_at(i)->word);
    return error_set(e, ERR_USAGE, "--quantize: no type '%.40s'; there are %s", word, known);
}

#define OVERRIDES 64

/* --tensor-type PATTERN=TYPE: the pattern may contain an equals sign. */
static int read_overrides(const struct options *o, struct export_options *x,
                          struct export_override *list, char *copies[OVERRIDES], struct error *e)
{
    if (o->tensor_type.n > OVERRIDES)
        return error_set(e, ERR_USAGE, "--tensor-type: at most %d", OVERRIDES);
    for (int i = 0; i < (int)o->tensor_type.n; i++) {
        const char *text = o->tensor_type.items[i], *equals = strrchr(text, '=');
        int type = equals ? dtype_from_word(equals + 1) : -1;

        if (!equals || equals == text || type < 0 || !quantise_known((enum dtype)type))
            return error_set(e, ERR_USAGE,
                             "--tensor-type: '%.80s' is not PATTERN=TYPE, such as "
                             "ffn_down_exps=q6_k, with a type that can be written",
                             text);
        if (!(copies[i] = mem_string_n(text, (size_t)(equals - text))))
            return error_set(e, ERR_MEMORY, "out of memory for --tensor-type");
        list[i] = (struct export_override){copies[i], (enum dtype)type};
        x->n_overrides = i + 1;
    }
    x->overrides = list;
    return 0;
}

/* --output-tensor-type and --token-embedding-type. text: NULL or empty, *out is unchanged. */
static int read_type(const char *option, const char *text, enum dtype *type, const enum dtype **out,
                     struct error *e)
{
    int found = text && *text ? dtype_from_word(text) : -1;

    if (!text || !*text)
        return 0;
    if (found < 0 || !quantise_known((enum dtype)found))
        return error_set(e, ERR_USAGE, "%s: '%.40s' is no type that can be written, such as q8_0",
                         option, text);
    *type = (enum dtype)found;
    *out = type;
    return 0;
}

static int draw(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *p = ctx;
    char rate[32];

    snprintf(rate, sizeof rate, "%.0f M/s",
             clock_rate((double)done, clock_now() - p->begun) * 1e-6);
    progress_draw(p, (double)done, (double)total, rate);
    return signals_last() != 0;
}

static void print_report(const struct export_report *r, const char *in, const char *out,
                         double seconds)
{
    char a[24], b[24], names[2][400];

    printf("%-16s %-7s %-7s %12s %10s %10s %11s\n", "tensors", "from", "to", "elements", "size",
           "rel. error", "largest");
    for (int i = 0; i < r->n_kinds; i++) {
        const struct export_kind *k = &r->kinds[i];

        printf("%-16s %-7s %-7s %12llu %10s ", k->name, dtype_info(k->from)->word,
               dtype_info(k->to)->word, (unsigned long long)k->elements,
               size_format(k->bytes, a, sizeof a));
        if (k->from == k->to)
            printf("%10s %11s\n", "copied", "");
        else
            printf("%9.3f%% %11.3g\n", 100.0 * k->relative, k->largest);
    }
    if (r->mtp)
        printf("the block that predicts further tokens is among them: --spec-type mtp\n");
    if (r->known + r->unknown)
        printf("%d kinds of matrices rounded by importance, %d of which nothing is known\n",
               r->known, r->unknown);
    utf8_escape(names[0], sizeof names[0], in, strlen(in), 0);
    utf8_escape(names[1], sizeof names[1], out, strlen(out), 0);
    printf("%s (%s) -> %s (%s) in %.1f s%s\n", names[0], size_format(r->bytes_in, a, sizeof a),
           names[1], size_format(r->bytes_out, b, sizeof b), seconds,
           r->tokenizer ? "" : "; no tokenizer was found: the file holds the weights alone");
    printf("%.2f bits a weight; the weights take %s of memory here, --fit -m %s says more\n",
           r->weights ? 8.0 * (double)r->bytes_out / (double)r->weights : 0.0,
           size_format(r->memory, a, sizeof a), names[1]);
}

static void warn_twice(const struct export_report *r)
{
    for (int i = 0; i < r->n_kinds; i++)
        if (dtype_is_quantised(r->kinds[i].from) && r->kinds[i].from != r->kinds[i].to) {
            fprintf(stderr, "moetop: the model was quantised before; rounding it again loses more "
                            "than rounding the original once\n");
            return;
        }
}

static int export_and_report(const struct options *o, struct export_options *x, struct error *e)
{
    static struct export_report r;
    const char *in = o->quantize.items[1], *out = o->quantize.items[2];
    struct progress p;
    int rc;

    progress_begin(&p, "quantize");
    x->progress = draw;
    x->progress_ctx = &p;
    x->n_threads = o->threads > 0 ? o->threads : topology_default_threads();
    signals_catch();
    rc = model_export(in, out, x, &r, e);
    progress_end(&p);
    if (rc < 0)
        return rc;
    warn_twice(&r);
    if (r.left_out[0]) {
        char text[2 * sizeof r.left_out];

        utf8_escape(text, sizeof text, r.left_out, strlen(r.left_out), 0);
        fprintf(stderr, "moetop: not in the file that was written: %s\n", text);
    }
    print_report(&r, in, out, clock_seconds(clock_now() - p.begun));
    return fflush(stdout) ? output_failed(NULL, errno, e) : 0;
}

/* --imatrix-text: `made` becomes the path of the matrix file, --imatrix's or OUT's with an ending;
 * empty: none is made. */
static int make_importance(const struct options *o, char *made, size_t size, struct error *e)
{
    const char *in = o->quantize.items[1], *out = o->quantize.items[2];

    made[0] = 0;
    if (!o->imatrix_text)
        return 0;
    if (snprintf(made, size, o->imatrix ? "%s" : "%s.imatrix.gguf",
                 o->imatrix ? o->imatrix : out) >= (int)size)
        return error_set(e, ERR_USAGE, "--quantize: the name of %.64s... is too long", out);
    return importance_from_text(o, in, made, e);
}

int quantize_run(struct options *o, struct error *e)
{
    struct export_options x = {0};
    struct export_override overrides[OVERRIDES];
    enum dtype head, embeddings;
    char *copies[OVERRIDES] = {NULL}, made[PATH_MAX], drafter[16];
    int rc;

    if (o->quantize.n != 3)
        return error_set(
            e, ERR_USAGE,
            "--quantize needs a type, a model and the file to write: --quantize TYPE IN OUT");
    if ((rc = find_type(o->quantize.items[0], &x.type, e)))
        return rc;
    if ((rc = read_type("--output-tensor-type", o->output_tensor_type, &head, &x.head, e)) ||
        (rc = read_type("--token-embedding-type", o->token_embedding_type, &embeddings,
                        &x.embeddings, e)))
        return rc;
    if (file_same(o->quantize.items[1], o->quantize.items[2]))
        return error_set(e, ERR_USAGE,
                         "--quantize: %s is what is read; give the file to write another name",
                         o->quantize.items[2]);
    option_word(&option_table[OPTION_ID_spec_type], o->spec_type, drafter, sizeof drafter);
    x.without_mtp = strcmp(drafter, "none") == 0;
    if ((rc = read_overrides(o, &x, overrides, copies, e)) == 0 &&
        (rc = make_importance(o, made, sizeof made, e)) == 0) {
        x.importance = made[0] ? made : o->imatrix;
        rc = export_and_report(o, &x, e);
    }
    for (int i = 0; i < OVERRIDES; i++)
        mem_free(copies[i]);
    return rc;
}
