/* --merge-lora: arguments, a progress bar on stderr if it is a terminal, one line on stdout. Main
 * thread; if interrupted by a signal it leaves no files. */
#include "app/headless/merge_lora.h"

#include "app/common/paths.h"
#include "app/common/progress.h"
#include "app/common/signals.h"
#include "app/setup/adapter_list.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/path.h"
#include "engine/base/size.h"
#include "engine/base/topology.h"
#include "engine/convert/export.h"
#include "engine/convert/merge_folder.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool merge_lora_wanted(const struct options *o)
{
    return o->merge_lora != NULL;
}

static int draw(void *ctx, uint64_t done, uint64_t total)
{
    progress_draw(ctx, (double)done, (double)total, "");
    return signals_last() != 0;
}

static int say(const char *out, uint64_t bytes, int adapters, const struct progress *p,
               struct error *e)
{
    char size[24];

    printf("%s: %s, %d adapter%s merged, in %.1f s\n", out, size_format(bytes, size, sizeof size),
           adapters, adapters == 1 ? "" : "s", clock_seconds(clock_now() - p->begun));
    return fflush(stdout) ? output_failed(NULL, errno, e) : 0;
}

static int refuse_type(struct error *e)
{
    return error_set(e, ERR_USAGE,
                     "--merge-lora writes F32, F16 and BF16; --quantize rounds what it wrote");
}

static int into_folder(const struct options *o, const char *in, const char *out,
                       const struct adapter_list *l, struct error *e)
{
    struct merge_report r;
    struct progress p;
    char word[16];
    int rc, type;

    option_word(&option_table[OPTION_ID_dtype], o->dtype, word, sizeof word);
    type = dtype_from_word(word); /* -1 for "keep" */
    if (type >= 0 && dtype_is_quantised((enum dtype)type))
        return refuse_type(e);
    progress_begin(&p, "merge");
    rc = merge_folder(in, out, type, l->all, l->n, draw, &p, &r, e);
    progress_end(&p);
    return rc < 0 ? rc : say(out, r.bytes, l->n, &p, e);
}

/* The present type of the weights, F16 for quantised ones; or --dtype's. */
static int choose_type(const struct options *o, const char *in, const struct export_type **type,
                       struct error *e)
{
    const struct model_options mo = {.convert = -1, .width = 8, .n_threads = 1};
    struct model *m;
    char word[16];
    int rc;

    option_word(&option_table[OPTION_ID_dtype], o->dtype, word, sizeof word);
    if (strcmp(word, "keep") == 0) {
        if ((rc = model_inspect(&m, in, &mo, NULL, e)) < 0)
            return rc;
        snprintf(word, sizeof word, "%s",
                 m->type == DTYPE_F32 || m->type == DTYPE_BF16 ? dtype_info(m->type)->word : "f16");
        model_free(m);
    }
    *type = export_type_find(word);
    return *type && !dtype_is_quantised((*type)->base) ? 0 : refuse_type(e);
}

static int into_gguf(const struct options *o, const char *in, const char *out,
                     const struct adapter_list *l, struct error *e)
{
    static struct export_report r;
    struct export_options x = {.adapters = l->all,
                               .n_adapters = l->n,
                               .n_threads = o->threads > 0 ? o->threads
                                                           : topology_default_threads(),
                               .progress = draw};
    struct progress p;
    int rc = choose_type(o, in, &x.type, e);

    if (rc < 0)
        return rc;
    progress_begin(&p, "merge");
    x.progress_ctx = &p;
    rc = model_export(in, out, &x, &r, e);
    progress_end(&p);
    return rc < 0 ? rc : say(out, r.bytes_out, l->n, &p, e);
}

int merge_lora_run(struct options *o, struct error *e)
{
    const char *out = o->merge_lora;
    char in[PATH_MAX];
    struct adapter_list l;
    int rc;

    if ((rc = adapter_list_init(&l, o, e)) < 0)
        return rc;
    if (!l.n)
        rc = error_set(e, ERR_USAGE, "--merge-lora needs an adapter: --lora FILE|FOLDER");
    else if ((rc = paths_model(o->model, in, sizeof in, e)) == 0 && file_same(in, out))
        rc = error_set(e, ERR_USAGE, "--merge-lora: %s is what is read; give another name", out);
    signals_catch();
    if (rc == 0)
        rc = path_stem(out, ".gguf") ? into_gguf(o, in, out, &l, e)
                                     : into_folder(o, in, out, &l, e);
    adapter_list_release(&l);
    return rc;
}
