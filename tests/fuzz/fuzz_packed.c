/* Fuzz target: packed checkpoints. The input is a quantization_config, a line feed, and the JSON
 * header of a safetensors file whose data are zeros and a few ones, as many as it asks for: what
 * counts is which parts there are, and of which shapes. Everything that opens is read row by row.
 */
#include "engine/base/json.h"
#include "engine/file/packed.h"
#include "engine/file/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA_MOST 65536
#define ROWS_MOST 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char made[64];

static void remove_folder(void)
{
    char path[128];

    snprintf(path, sizeof path, "%s/config.json", made);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", made);
    unlink(path);
    rmdir(made);
}

static const char *folder(void)
{
    if (!made[0]) {
        snprintf(made, sizeof made, "/tmp/moetop-fuzz-packed-XXXXXX");
        if (!mkdtemp(made) || atexit(remove_folder))
            abort();
    }
    return made;
}

static void write_file(const char *name, const void *first, size_t n, const void *second, size_t m,
                       size_t rest)
{
    static uint8_t filling[DATA_MOST];
    char path[128];
    FILE *f;

    for (size_t i = 0; i < sizeof filling; i += 7)
        filling[i] = 1;
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    unlink(path); /* a new file: ext4 waits for the disk where one is cut and written again */
    if (!(f = fopen(path, "wb")) || (n && fwrite(first, 1, n, f) != n) ||
        (m && fwrite(second, 1, m, f) != m) || (rest && fwrite(filling, 1, rest, f) != rest))
        abort();
    fclose(f);
}

/* Where the data of the last tensor end. */
static size_t data_bytes(const uint8_t *header, size_t n)
{
    json_t *root = json_loadb((const char *)header, n, 0, NULL), *t;
    const char *name;
    json_int_t end = 0;

    json_object_foreach(root, name, t)
    {
        json_int_t last = json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 1));

        end = last > end ? last : end;
    }
    json_decref(root);
    return end > DATA_MOST ? DATA_MOST : (size_t)end;
}

static void read_rows(const struct tensor_view *t)
{
    size_t row = dtype_row_bytes(t->type, t->packed->cols);
    int64_t rows = t->packed->rows < ROWS_MOST ? t->packed->rows : ROWS_MOST;
    size_t offset, bytes;
    float *values = malloc((size_t)t->packed->cols * sizeof *values);
    uint8_t *out = malloc(PACKED_ROWS * row + 1);

    if (!values || !out)
        abort();
    for (int64_t r = 0, n; r < rows; r += n) {
        n = rows - r < PACKED_ROWS ? rows - r : PACKED_ROWS;
        packed_rows(t, r, 1, (int)n, out);
        packed_values(t, r, values);
    }
    packed_values(t, t->packed->rows - 1, values);
    packed_span(t, 0, t->packed->rows, &offset, &bytes);
    if (offset || bytes > t->bytes)
        abort();
    free(values);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    static const char head[] = "{\"quantization_config\": ";
    char config[4096];
    struct weight_file *f;
    struct error e = {0};
    uint64_t n;

    if (!line || (size_t)(line - data) > sizeof config - 64)
        return 0;
    write_file("config.json", config,
               (size_t)snprintf(config, sizeof config, "%s%.*s}", head, (int)(line - data), data),
               NULL, 0, 0);
    n = size - (size_t)(line - data) - 1;
    write_file("model.safetensors", &n, 8, line + 1, n, data_bytes(line + 1, n));
    for (int tokenizer_only = 0; tokenizer_only < 2; tokenizer_only++) {
        if (weight_file_open(&f, folder(), tokenizer_only, &e) == 0) {
            for (size_t i = 0; i < weight_file_count(f); i++)
                if (weight_file_at(f, i)->packed)
                    read_rows(weight_file_at(f, i));
            (void)weight_file_hash(f);
            weight_file_close(f);
        } else if (!e.text[0] || strchr(e.text, '\n')) {
            abort();
        }
    }
    return 0;
}
