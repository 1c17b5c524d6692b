/* Fuzz target: routing traces, as lines if the input begins like JSON, else as safetensors with the
 * length in front put right. What is accepted must also make a report. */
#include "app/lab/report.h"
#include "engine/base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[2][64]; /* .safetensors, .jsonl */

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void remove_files(void)
{
    unlink(path[0]);
    unlink(path[1]);
}

static void write_input(int lines, const uint8_t *data, size_t size, uint64_t head)
{
    FILE *f;

    if (!path[0][0]) {
        strcpy(path[0], "/tmp/moetop-fuzz-XXXXXX.safetensors");
        strcpy(path[1], "/tmp/moetop-fuzz-XXXXXX.jsonl");
        must(!close(mkstemps(path[0], 12)) && !close(mkstemps(path[1], 6)));
        must(!atexit(remove_files));
    }
    must((f = fopen(path[lines], "wb")) != NULL);
    if (!lines)
        must(fwrite(&head, 1, 8, f) == 8);
    must(fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

/* The end of the first JSON object, strings not understood; 0: none. */
static size_t object_end(const uint8_t *data, size_t size)
{
    for (size_t i = 0, depth = 0; i < size; i++) {
        depth += data[i] == '{';
        if (data[i] == '}' && depth && --depth == 0)
            return i + 1;
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace_report report;
    struct error e = {0};
    struct trace *t;
    int lines;
    json_t *o;

    if (!size || size > 1 << 16)
        return 0;
    lines = size > 17 && memcmp(data, "{\"moetop_routing\"", 17) == 0;
    write_input(lines, data, size, object_end(data, size));
    if (trace_open(&t, path[lines], &e) < 0) {
        must(!t && e.text[0] && !strchr(e.text, '\n'));
        return 0;
    }
    if (t->head.layers * t->head.experts <= 4096) { /* a report of many is slow, not wrong */
        if (trace_report_make(&report, t, &e) == 0) {
            must((o = report_figures_json(&report, 1, NULL)) != NULL);
            json_decref(o);
            trace_report_release(&report);
        } else {
            must(e.text[0]);
        }
    }
    trace_close(t);
    return 0;
}
