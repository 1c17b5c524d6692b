/* Fuzz target: adapters, for one of the golden models. The first byte of the input says the format:
 * G: a GGUF file follows; P, K: adapter_config.json on one line, a line feed, and the JSON header
 * of PEFT's or KTransformers' safetensors file, whose data are as many small numbers as it asks
 * for. What opens must have found a place for a matrix at least; what does not says why in one
 * line. Run from the root of the repository. */
#include "engine/adapter/adapter.h"
#include "engine/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BASE "tests/golden/families/qwen3_moe"
#define DATA_MOST ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char made[64];

static const char *const names[] = {"adapter_config.json", "adapter_model.safetensors",
                                    "fused_expert_lora.safetensors", "adapter.gguf"};

static void empty_folder(void)
{
    char path[128];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", made, names[i]);
        unlink(path);
    }
}

static void remove_folder(void)
{
    empty_folder();
    rmdir(made);
}

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void write_file(const char *name, const void *head, size_t n, size_t length, size_t rest)
{
    static uint8_t filling[DATA_MOST];
    uint64_t size = length;
    char path[128];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", made, name);
    must((f = fopen(path, "wb")) != NULL);
    must(!length || fwrite(&size, 8, 1, f) == 1);
    must(!n || fwrite(head, 1, n, f) == n);
    must(!rest || fwrite(filling, 1, rest, f) == rest);
    fclose(f);
}

/* Where the data of the last tensor end. */
static size_t data_bytes(const uint8_t *header, size_t n)
{
    json_t *root = json_loadb((const char *)header, n, 0, NULL), *entry;
    const char *name;
    int64_t end = 0;

    json_object_foreach(root, name, entry)
    {
        const json_t *at = json_object_get(entry, "data_offsets");
        int64_t last = json_integer_value(json_array_get(at, 1));

        end = last > end ? last : end;
    }
    json_decref(root);
    return end > 0 && end <= (int64_t)DATA_MOST ? (size_t)end : 0;
}

static const char *write_input(const uint8_t *data, size_t size, char *path, size_t path_size)
{
    const uint8_t *feed = size ? memchr(data + 1, '\n', size - 1) : NULL;

    empty_folder();
    snprintf(path, path_size, "%s%s", made, size && data[0] == 'G' ? "/adapter.gguf" : "");
    if (size && data[0] == 'G') {
        write_file("adapter.gguf", data + 1, size - 1, 0, 0);
    } else if (feed) {
        size_t n = size - (size_t)(feed + 1 - data);

        write_file(names[0], data + 1, (size_t)(feed - data) - 1, 0, 0);
        write_file(names[data[0] == 'K' ? 2 : 1], feed + 1, n, n, data_bytes(feed + 1, n));
    }
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_options o = {.convert = -1, .width = 8, .n_threads = 1};
    struct adapter_request asked = {.strength = 1.0f};
    static struct model *base;
    struct adapters *all = NULL;
    struct error e = {0};
    char path[128];

    if (!made[0]) {
        snprintf(made, sizeof made, "/tmp/moetop-fuzz-adapter-XXXXXX");
        must(mkdtemp(made) && !atexit(remove_folder));
        must(model_inspect(&base, BASE, &o, NULL, &e) == 0);
    }
    asked.path = write_input(data, size, path, sizeof path);
    if (adapters_open(&all, base, &asked, 1, true, &e) == 0)
        must(adapters_at(all, 0)->matrices > 0 && adapters_bytes(all) > 0);
    else
        must(e.text[0] && !strchr(e.text, '\n'));
    adapters_close(all);
    return 0;
}
