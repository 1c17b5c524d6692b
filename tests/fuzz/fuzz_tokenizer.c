/* Fuzz target: tokenizers. An input that starts with `{` is a tokenizer.json, one with `GGUF` a
 * model file: both are loaded, with the chat template, and tried on a text. Any other is a text for
 * the bundled model's tokenizer and for a byte-level one, which must give it back byte for byte;
 * its first byte chooses whether special tokens are read. */
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/file/weights.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "tests/byte_level.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
    if (!ok)
        abort();
}

static void check_text(const struct tokenizer *t, const char *text, size_t size, bool special,
                       bool exact)
{
    struct error e = {0};
    struct detokenizer d;
    char *back, piece[64];
    int *ids, n;
    size_t len;

    if (tokenizer_encode(t, text, size, special, &ids, &n, &e) < 0) {
        must(!exact && e.code == ERR_INPUT && e.text[0]); /* a pattern that takes too long */
        return;
    }
    for (int i = 0; i < n; i++)
        must(ids[i] >= 0 && ids[i] < tokenizer_size(t) && tokenizer_piece(t, ids[i], NULL, NULL));
    must(tokenizer_decode(t, ids, n, false, &back, &len, &e) == 0);
    must(!exact || (len == size && memcmp(back, text, len) == 0));
    detokenizer_init(&d, t, true);
    for (int i = 0; i < n; i++)
        must(utf8_valid(piece, detokenizer_push(&d, ids[i], piece, sizeof piece)));
    must(utf8_valid(piece, detokenizer_finish(&d, piece, sizeof piece)));
    mem_free(back);
    mem_free(ids);
}

static struct tokenizer *bundled(void)
{
    static struct tokenizer *t;
    static struct weight_file *f;
    struct error e;

    if (!t)
        must(weight_file_open(&f, "configs/models/tiny-storyteller-Q8_0.gguf", true, &e) == 0 &&
             tokenizer_load(&t, f, &e) == 0);
    return t;
}

static void put(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");

    must(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

/* Files of this process. */
static const char *folder(void)
{
    static char dir[64];
    char path[96];

    if (!dir[0]) {
        snprintf(dir, sizeof dir, "%s", "/tmp/fuzz-tokenizer-XXXXXX");
        must(mkdtemp(dir) != NULL);
        snprintf(path, sizeof path, "%s/config.json", dir);
        put(path, "{\"model_type\": \"phimoe\"}", 24);
    }
    return dir;
}

static struct tokenizer *byte_level(void)
{
    static struct tokenizer *t;
    static struct weight_file *f;
    struct error e;
    char path[96], *json;

    if (t)
        return t;
    json = byte_level_json("\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
                           "false}, \"added_tokens\": [{\"id\": 300, \"content\": \"<|end|>\", "
                           "\"special\": true}], ",
                           "");
    snprintf(path, sizeof path, "%s/tokenizer.json", folder());
    put(path, json, strlen(json));
    free(json);
    must(weight_file_open(&f, folder(), true, &e) == 0 && tokenizer_load(&t, f, &e) == 0);
    unlink(path);
    return t;
}

static void check_chat(const struct weight_file *f, const struct tokenizer *t)
{
    static char hi[] = "Hi <|end|>";
    struct message m = {.role = ROLE_USER, .text = hi};
    struct chat_template *c;
    struct error e = {0};
    int *ids, n, starts[2];

    if (chat_template_load(&c, f, t, NULL, &e) < 0)
        return;
    if (chat_template_encode(c, &m, 1, NULL, true, NULL, &ids, &n, starts, &e) == 0) {
        must(starts[0] == 0 && starts[1] >= 0 && starts[1] <= n);
        mem_free(ids);
    }
    chat_template_free(c);
}

static void check_file(const char *path, const uint8_t *data, size_t size)
{
    struct weight_file *f;
    struct tokenizer *t;
    struct error e = {0};

    if (weight_file_open(&f, path, true, &e) < 0) {
        must(e.code && e.text[0]);
        return;
    }
    if (tokenizer_load(&t, f, &e) == 0) {
        check_text(t, "Hello, <|end|> a\xe2\x96\x81 b\xff", 20, true, false);
        check_text(t, (const char *)data, size < 400 ? size : 400, false, false);
        check_chat(f, t);
        tokenizer_free(t);
    } else
        must(e.code && e.text[0]);
    weight_file_close(f);
}

static void check_model(const uint8_t *data, size_t size, bool json)
{
    const char *dir = folder();
    char path[96];

    snprintf(path, sizeof path, "%s/%s", dir, json ? "tokenizer.json" : "model.bin");
    put(path, data, size);
    check_file(json ? dir : path, data, size);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if ((size && data[0] == '{') || (size > 4 && memcmp(data, "GGUF", 4) == 0))
        check_model(data, size, data[0] == '{');
    else if (size) {
        bool special = data[0] & 1;
        /* a word mark in the text comes back as a blank, and special tokens swallow blanks */
        bool exact = !special && !memmem(data, size, "\xe2\x96\x81", 3);

        check_text(bundled(), (const char *)data + 1, size - 1, special, exact);
        check_text(byte_level(), (const char *)data + 1, size - 1, special, true);
    }
    return 0;
}
