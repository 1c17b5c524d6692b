/* make golden DIRS="…": checks folders of the layout of tests/golden/phimoe (config.json,
 * model.safetensors, golden.safetensors), and GGUF files with their numbers beside them (NAME.gguf,
 * NAME.golden.safetensors). One line a folder; exits 1 when a logit differs by more than 1e-4, when
 * greedy text or routing differ, or when a folder cannot be read. */
#include "tests/golden.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static void golden_path(const char *model, char *out, size_t size)
{
    size_t n = strlen(model);

    if (n > 5 && strcmp(model + n - 5, ".gguf") == 0)
        snprintf(out, size, "%.*s.golden.safetensors", (int)(n - 5), model);
    else
        snprintf(out, size, "%s/golden.safetensors", model);
}

int main(int argc, char **argv)
{
    int failed = 0;

    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER|FILE.gguf...\n", argv[0]);
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        char path[PATH_MAX], why[PATH_MAX + 64];
        struct golden golden;
        struct golden_result r = {0};
        struct engine *g = NULL;
        struct error e = {0};
        double worst;

        golden_path(argv[i], path, sizeof path);
        if (golden_open(&golden, path, why, sizeof why) < 0) {
            printf("%s: FAILED: %s\n", argv[i], why);
            failed = 1;
            continue;
        }
        if (golden_engine(&g, argv[i], NULL, 0, -1, true, &e) < 0 ||
            golden_compare(g, &golden, &r, &e) < 0) {
            printf("%s: FAILED: %s\n", argv[i], e.text);
            failed = 1;
        } else {
            worst = r.whole > r.chunked ? r.whole : r.chunked;
            worst = r.stepped > worst ? r.stepped : worst;
            printf("%s: largest logit difference %.3g (whole %.3g, chunks of 1, 7, 16 %.3g, token "
                   "by token %.3g), greedy %s, routing %s%s\n",
                   argv[i], worst, r.whole, r.chunked, r.stepped,
                   !r.has_greedy     ? "not given"
                   : r.greedy_agrees ? "agrees"
                                     : "DIFFERS",
                   r.routing_agrees ? "agrees" : "DIFFERS",
                   worst <= GOLDEN_TOLERANCE ? "" : ": FAILED, beyond 1e-4");
            failed |= !(worst <= GOLDEN_TOLERANCE) || !r.greedy_agrees || !r.routing_agrees;
        }
        engine_close(g);
        golden_close(&golden);
    }
    return failed;
}
