/* --export-onnx: arguments, a progress bar on stderr if it is a terminal, one line on stdout. Main
 * thread; if interrupted by a signal it leaves no files. */
#include "app/headless/export_onnx.h"

#include "app/common/paths.h"
#include "app/common/progress.h"
#include "app/common/signals.h"
#include "app/setup/adapter_list.h"
#include "engine/base/clock.h"
#include "engine/base/size.h"
#include "engine/convert/onnx/export_onnx.h"
#include "engine/file/dtype.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

bool export_onnx_wanted(const struct options *o)
{
    return o->export_onnx != NULL;
}

static int draw(void *ctx, uint64_t done, uint64_t total)
{
    progress_draw(ctx, (double)done, (double)total, "");
    return signals_last() != 0;
}

static int say(const char *out, const struct onnx_report *r, int adapters, const struct progress *p,
               struct error *e)
{
    char graph[24], own[24], shared[24], more[64] = "";

    if (adapters)
        snprintf(more, sizeof more, ", %d adapter%s merged", adapters, adapters == 1 ? "" : "s");
    printf("%s: a graph of %s, %s of weights in the checkpoint's own file, %s in model.onnx_data"
           "%s%s, in %.1f s\n",
           out, size_format(r->graph, graph, sizeof graph),
           size_format(r->shared, shared, sizeof shared), size_format(r->own, own, sizeof own),
           more, r->genai ? "" : ", no genai_config.json (its layers' caches differ)",
           clock_seconds(clock_now() - p->begun));
    return fflush(stdout) ? output_failed(NULL, errno, e) : 0;
}

/* --dtype: -1 for "keep". */
static int choose_type(const struct options *o, int *type, struct error *e)
{
    char word[16];

    option_word(&option_table[OPTION_ID_dtype], o->dtype, word, sizeof word);
    *type = dtype_from_word(word);
    return *type >= 0 && dtype_is_quantised((enum dtype) * type)
               ? error_set(e, ERR_USAGE, "--export-onnx writes F32, F16 and BF16, not %s", word)
               : 0;
}

int export_onnx_run(struct options *o, struct error *e)
{
    enum { MICROSOFT = 1 };
    const char *out = o->export_onnx;
    struct onnx_request r = {.microsoft = o->onnx_ops == MICROSOFT, .progress = draw};
    struct onnx_report report;
    struct adapter_list l;
    struct progress p;
    char in[PATH_MAX];
    int rc;

    if ((rc = choose_type(o, &r.type, e)) < 0 || (rc = adapter_list_init(&l, o, e)) < 0)
        return rc;
    r.adapters = l.all;
    r.n_adapters = l.n;
    r.progress_ctx = &p;
    signals_catch();
    progress_begin(&p, "export");
    if ((rc = paths_model(o->model, in, sizeof in, e)) == 0)
        rc = export_onnx(in, out, &r, &report, e);
    progress_end(&p);
    if (rc == 0)
        rc = say(out, &report, l.n, &p, e);
    adapter_list_release(&l);
    return rc;
}
