/* make golden DIRS="…": checks folders of the layout of tests/golden/phimoe (config.json,
 * model.safetensors, golden.safetensors), and GGUF files with their numbers beside them (NAME.gguf,
 * NAME.golden.safetensors). Of these a file that keeps its folder's weights is held to the official
 * code's logits (hf_logits) where they are there, a rounded one to those of its own weights
 * (logits); blocks are multiplied as the floats that they stand for. One line a folder; exits 1
 * when a logit differs by more than its family's tolerance, when greedy text or routing differ, or
 * when a folder cannot be read. */
#include "engine/file/weights.h"
#include "tests/golden.h"
#include "tests/golden_lora.h"
#include "tests/support.h"
#include "tests/widen.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static bool is_gguf(const char *model)
{
    size_t n = strlen(model);

    return n > 5 && strcmp(model + n - 5, ".gguf") == 0;
}

static void golden_path(const char *model, char *out, size_t size)
{
    if (is_gguf(model))
        snprintf(out, size, "%.*s.golden.safetensors", (int)(strlen(model) - 5), model);
    else
        snprintf(out, size, "%s/golden.safetensors", model);
}

/* blocks: it has any; rounded: of a type in which no folder of these goldens comes. */
static int look(const char *model, bool *blocks, bool *rounded, struct error *e)
{
    struct weight_file *f;
    int rc = weight_file_open(&f, model, false, e);

    for (size_t i = 0; rc == 0 && i < weight_file_count(f); i++) {
        enum dtype type = weight_file_at(f, i)->type;

        *blocks |= dtype_is_quantised(type);
        *rounded |= dtype_is_quantised(type) && type != DTYPE_MXFP4;
    }
    if (rc == 0)
        weight_file_close(f);
    return rc;
}

static int open_golden(struct golden *golden, const char *path, bool gguf, bool rounded, char *why,
                       size_t size)
{
    return gguf && !rounded && golden_open_logits(golden, path, "hf_logits", why, size) == 0
               ? 0
               : golden_open(golden, path, why, size);
}

static int say(const char *name, const struct golden_result *r, double most)
{
    double worst = r->whole > r->chunked ? r->whole : r->chunked;
    bool fits;

    worst = r->stepped > worst ? r->stepped : worst;
    fits = worst <= most;
    printf("%s: largest logit difference %.3g (whole %.3g, chunks of 1, 7, 16 %.3g, token by token "
           "%.3g), greedy %s, routing %s",
           name, worst, r->whole, r->chunked, r->stepped,
           !r->has_greedy     ? "not given"
           : r->greedy_agrees ? "agrees"
                              : "DIFFERS",
           r->routing_agrees ? "agrees" : "DIFFERS");
    if (!fits)
        printf(": FAILED, beyond %g", most);
    printf("\n");
    return fits && r->greedy_agrees && r->routing_agrees ? 0 : -1;
}

/* 0, or -1 where anything differs or cannot be read; the line is written. */
static int check(const char *model)
{
    char path[PATH_MAX], why[PATH_MAX + 64], widened[PATH_MAX];
    bool gguf = is_gguf(model), blocks = false, rounded = false;
    struct golden golden = {0};
    struct golden_result r = {0};
    struct engine *g = NULL;
    struct error e = {0};
    int rc;

    golden_path(model, path, sizeof path);
    snprintf(widened, sizeof widened, "%s/widened.gguf", support_tmpdir());
    if (gguf && look(model, &blocks, &rounded, &e) < 0) {
        printf("%s: FAILED: %s\n", model, e.text);
        return -1;
    }
    if (open_golden(&golden, path, gguf, rounded, why, sizeof why) < 0) {
        printf("%s: FAILED: %s\n", model, why);
        return -1;
    }
    if ((blocks && widen_gguf(model, widened, &e) < 0) ||
        golden_engine(&g, blocks ? widened : model, NULL, 0, -1, true, &e) < 0 ||
        golden_compare(g, &golden, &r, &e) < 0) {
        printf("%s: FAILED: %s\n", model, e.text);
        rc = -1;
    } else {
        rc = say(model, &r, golden_tolerance(engine_info(g)->model->family));
    }
    engine_close(g);
    golden_close(&golden);
    return rc;
}

static int check_adapters(const char *folder)
{
    struct golden_lora_way ways[GOLDEN_LORA_WAYS];
    char base[PATH_MAX], path[PATH_MAX], why[PATH_MAX + 64], name[PATH_MAX + 200];
    int n = golden_lora_ways(folder, base, sizeof base, ways), rc = n ? 0 : -1;

    if (!n)
        printf("%s: FAILED: golden.safetensors or an adapter is missing\n", folder);
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    for (int i = 0; i < n; i++) {
        struct golden golden = {0};
        struct golden_result r = {0};
        struct engine *g = NULL;
        struct error e = {0};

        snprintf(name, sizeof name, "%s: %s", folder, ways[i].text);
        if (golden_open_logits(&golden, path, ways[i].logits, why, sizeof why) < 0) {
            printf("%s: FAILED: %s\n", name, why);
            rc = -1;
        } else if (golden_engine_adapted(&g, base, ways[i].adapters, ways[i].n, NULL, 0, -1, true,
                                         &e) < 0 ||
                   golden_compare(g, &golden, &r, &e) < 0) {
            printf("%s: FAILED: %s\n", name, e.text);
            rc = -1;
        } else if (say(name, &r, GOLDEN_TOLERANCE) < 0) {
            rc = -1;
        }
        engine_close(g);
        golden_close(&golden);
    }
    golden_lora_release(ways, n);
    return rc;
}

int main(int argc, char **argv)
{
    int failed = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER|FILE.gguf...\n", argv[0]);
        return 2;
    }
    for (int i = 1; i < argc; i++)
        failed |= (golden_lora_is(argv[i]) ? check_adapters(argv[i]) : check(argv[i])) < 0;
    return failed;
}
