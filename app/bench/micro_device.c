/* --microbench, the part about devices other than the CPU: each kernel and shape of the model's
 * token and prompt, measured on the device of --device, or predicted for a card (--microbench
 * h200). Main thread. */
#include "app/bench/internal.h"
#include "app/common/devices.h"
#include "app/common/paths.h"
#include "engine/base/mem.h"
#include "engine/base/topology.h"

#include <stdio.h>
#include <string.h>

#define KERNELS_MOST 600
#define NEAR 256   /* tokens before the first token that is measured, */
#define FAR 3584   /* before the second, */
#define PROMPT 512 /* and of a prompt */

/* Microseconds that a kernel should take for one token of Phi-tiny's shape (4096 columns, 16
 * experts of 448, two a token) on an H200 or an H100, and operations a second of a prompt's. They
 * stand beside predictions for that card; beside what another device takes they would say nothing.
 */
static const struct {
    const char *kernel;
    double us, ops;
} targets[] = {{"token_route", 14, 0}, {"norm", 6, 0},           {"matmul", 8, 70e12},
               {"gate_up", 12, 0},     {"token_gate_up", 12, 0}, {"down", 8, 0},
               {"token_down", 14, 0},  {"token_attend", 12, 0},  {"token_output", 22, 0}};

static void print_target(const struct device_kernel *k, const struct device_pass *pass)
{
    char text[24] = "";

    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        if (strcmp(targets[i].kernel, k->name) != 0 || k->launches == 1) /* of every layer */
            continue;
        if (pass->rows > 1 && targets[i].ops > 0)
            snprintf(text, sizeof text, "%.0f Top/s", targets[i].ops * 1e-12);
        else if (pass->rows == 1 && pass->depth == NEAR)
            snprintf(text, sizeof text, "%.0f us", targets[i].us);
    }
    printf(" %-8s |", text);
}

static void print_kernel(const struct device_kernel *k, const struct device_pass *pass,
                         const struct device_kernels *about)
{
    double rate = k->bytes / k->seconds;
    char share[16] = "", speed[16] = "", top[16] = "";

    if (k->bytes > 0 && k->seconds > 0) {
        snprintf(speed, sizeof speed, "%.1f", rate * 1e-9);
        if (about->read_rate > 0)
            snprintf(share, sizeof share, "%.0f %%", 100 * rate / about->read_rate);
    }
    if (k->ops > 0 && k->seconds > 0)
        snprintf(top, sizeof top, "%.2f", k->ops / k->seconds * 1e-12);
    printf("| %-13s | %-36s | %8d | %9.1f | %7s | %7s | %7s |", k->name, k->shape, k->launches,
           k->seconds * 1e6, speed, share, top);
    if (about->predicted)
        print_target(k, pass);
    printf("\n");
}

static bool listed(const struct device_kernel *k, int n, const struct device_kernel *like)
{
    for (int i = 0; i < n; i++)
        if (k[i].pass < like->pass && strcmp(k[i].name, like->name) == 0 &&
            strcmp(k[i].shape, like->shape) == 0)
            return true;
    return false;
}

/* ahead: the same kernels where loops that load ahead are as fast as their machine code; NULL:
 * none. */
static void print_pass(const struct device_kernel *k, const struct device_kernel *ahead, int n,
                       int pass, const struct device_pass *p, const struct device_kernels *about)
{
    double seconds = 0, least = 0;
    int launches = 0;

    if (p->rows > 1)
        printf("\nA prompt of %d tokens%s:\n\n", p->rows, about->predicted ? " (predicted)" : "");
    else
        printf("\nOne token behind %d%s:\n\n", p->depth, about->predicted ? " (predicted)" : "");
    printf("| %-13s | %-36s | %8s | %9s | %7s | %7s | %7s |%s\n", "kernel", "shape", "launches",
           "us", "GB/s", "of read", "Top/s", about->predicted ? " target   |" : "");
    printf(
        "| ------------- | ------------------------------------ | -------: | --------: | ------: | "
        "------: | ------: |%s\n",
        about->predicted ? " -------- |" : "");
    for (int i = 0; i < n; i++) {
        if (k[i].pass != pass)
            continue;
        seconds += k[i].seconds * k[i].launches;
        least += ahead ? ahead[i].seconds * k[i].launches : 0;
        launches += k[i].launches;
        if (!listed(k, n, &k[i]))
            print_kernel(&k[i], p, about);
    }
    printf("\nAll %d launches of %d layer%s and the head: %.3f ms", launches, about->layers,
           about->layers == 1 ? "" : "s", seconds * 1e3);
    if (about->layers == about->of_layers && seconds > 0)
        printf(", %.0f tokens/s by the kernels alone%s", p->rows / seconds,
               about->predicted ? ", predicted" : "");
    if (about->layers == about->of_layers && least > 0)
        printf("; %.0f if loops that load ahead are as fast as ptxas has them", p->rows / least);
    printf("%s.\n",
           listed(k, n, &k[n - 1]) && pass ? " (kernels listed above are not repeated)" : "");
}

static void print_all(const struct device_kernel *k, const struct device_kernel *ahead, int n,
                      const struct device_pass *passes, int n_passes,
                      const struct device_kernels *about)
{
    printf("\nOpenCL kernels%s on %s, which reads %.1f GB/s",
           about->predicted ? ", PREDICTED and not measured," : "", about->device,
           about->read_rate * 1e-9);
    if (about->layers < about->of_layers)
        printf("; %d of the model's %d layers", about->layers, about->of_layers);
    printf(".\n");
    if (about->shapes[0])
        printf("Work-groups of one token, rows x work-items a row x blocks ahead x bytes a load: "
               "%s.\n",
               about->shapes);
    if (about->predicted)
        printf("Targets: for Phi-tiny's shape; at most 7 launches a layer of one token;\n500 "
               "tokens/s of Q4_0, 400 of Q8_0 and Q4_K_M, "
               "12,000 of a prompt.\n");
    for (int p = 0; p < n_passes; p++)
        print_pass(k, ahead, n, p, &passes[p], about);
}

static void print_line(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "moetop: %s\n", line);
}

/* Passes that the model's context has room for. */
static int passes_of(const struct model *m, struct device_pass out[3])
{
    const struct device_pass all[] = {{1, NEAR}, {1, FAR}, {PROMPT, 0}};
    int n = 0;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].rows + all[i].depth <= m->hp.context_max)
            out[n++] = all[i];
    return n;
}

/* Whether a device other than the CPU may be measured; else the reason is printed. */
static bool device_there(const struct options *o, const struct device_ops *ops)
{
    struct device_info found[DEVICE_MAX];
    char why[512] = "";
    int n;

    if (o->device && strcmp(o->device, "none") == 0)
        return false;
    memset(found, 0, sizeof found);
    n = ops->probe(found, DEVICE_MAX, why, sizeof why);
    for (int i = 0; i < n && i < DEVICE_MAX; i++)
        if (!found[i].why_not[0])
            return true;
    printf("\nNo kernels of %s are measured: %s\n", ops->name, n ? found[0].why_not : why);
    return false;
}

static int measure(const struct options *o, const struct device_ops *ops, const char *path,
                   const char *card, struct error *e)
{
    struct model_options options = {
        .convert = -1, .width = cpu_pack_width(), .n_threads = topology_default_threads()};
    struct device_kernel *k = mem_alloc(2 * KERNELS_MOST, sizeof *k), *ahead = NULL;
    struct device_kernels about;
    struct device_pass passes[3];
    struct model *model = NULL;
    int n_passes = 0, n = 0, rc = k ? 0 : error_set(e, ERR_MEMORY, "out of memory for a table");

    if (rc == 0)
        rc = card ? model_inspect(&model, path, &options, NULL, e)
                  : model_load(&model, path, &options, e);
    if (rc == 0 && (n_passes = passes_of(model, passes)) == 0)
        rc = error_set(e, ERR_MODEL, "%s: its context of %d tokens is too short to measure", path,
                       model->hp.context_max);
    if (rc == 0) {
        struct device_config c = {.model = model,
                                  .n_threads = 1,
                                  .kv_k = (enum kv_type)o->cache_type_k,
                                  .kv_v = (enum kv_type)o->cache_type_v,
                                  .selector = o->device,
                                  .cache_dir = paths_cache(o->cache_dir),
                                  .log = print_line};

        rc = n = ops->kernels(&c, card, passes, n_passes, k, KERNELS_MOST, &about, e);
        if (card && n > 0) {
            char text[40];

            snprintf(text, sizeof text, "%.30s-ahead", card);
            ahead = k + KERNELS_MOST;
            if ((rc = ops->kernels(&c, text, passes, n_passes, ahead, KERNELS_MOST, &about, e)) !=
                n)
                ahead = NULL;
        }
    }
    if (rc >= 0 && n > 0)
        print_all(k, ahead, n, passes, n_passes, &about);
    model_free(model);
    mem_free(k);
    return rc < 0 ? rc : 0;
}

int bench_micro_devices(const struct options *o, const char *path, const char *card,
                        struct error *e)
{
    int rc = 0;

    for (const struct device_ops *const *b = device_backends; *b && rc == 0; b++)
        if ((*b)->kernels && (card || device_there(o, *b)))
            rc = measure(o, *b, path, card, e);
    return rc;
}
