/* --tokenize: text on standard input, its ids as one JSON array on standard output. --detokenize:
 * the reverse. --print-prompt: -p as the chat template renders it. Main thread. Byte-exact: NULs
 * and malformed UTF-8 are preserved, and no line end is dropped or added. */
#include "app/headless/tokenize.h"

#include "app/setup/engine_options.h"
#include "app/common/paths.h"
#include "app/common/signals.h"
#include "app/setup/prompt.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"
#include "engine/file/weights.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int read_input(struct strbuf *b, struct error *e)
{
    for (;;) {
        ssize_t n;

        if (!strbuf_reserve(b, 65536))
            return error_set(e, ERR_MEMORY, "standard input does not fit into memory");
        n = read(STDIN_FILENO, b->data + b->len, 65536);
        if (n == 0)
            return 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set(e, ERR_IO, "cannot read standard input: %s", strerror(errno));
        b->len += (size_t)n;
        b->data[b->len] = 0;
    }
}

/* -m may name a GGUF, a folder, or a JSON file of a folder (tokenizer.json). */
static int open_tokenizer(const struct options *o, struct weight_file **f, struct tokenizer **t,
                          struct error *e)
{
    char path[PATH_MAX], folder[PATH_MAX];
    int status = paths_model(o->model, path, sizeof path, e);

    *f = NULL;
    *t = NULL;
    if (status < 0)
        return status;
    path_folder(path, folder, sizeof folder);
    status = weight_file_open(f, path_stem(path, ".json") ? folder : path, true, e);
    if (status == 0 && (status = tokenizer_load(t, *f, e)) == 0 && tokenizer_notice(*t))
        fprintf(stderr, "moetop: %s\n", tokenizer_notice(*t));
    return status;
}

/* On a terminal control characters are escaped; a file or pipe gets every byte unchanged. */
static int write_output(const char *data, size_t n, struct error *e)
{
    struct strbuf safe = {0};
    size_t size;
    int status;

    if (isatty(STDOUT_FILENO)) {
        size = utf8_escape(NULL, 0, data, n, UTF8_KEEP_NEWLINE | UTF8_KEEP_TAB);
        if (!strbuf_reserve(&safe, size))
            return error_set(e, ERR_MEMORY, "out of memory for the text");
        utf8_escape(safe.data, size + 1, data, n, UTF8_KEEP_NEWLINE | UTF8_KEEP_TAB);
        status = fwrite(safe.data, 1, size, stdout) == size && fflush(stdout) == 0
                     ? 0
                     : output_failed(NULL, errno, e);
        strbuf_release(&safe);
        return status;
    }
    if (fwrite(data, 1, n, stdout) == n && fflush(stdout) == 0)
        return 0;
    return output_failed(NULL, errno, e);
}

/* The prompt as messages (room for two), as for -p; all of them to be freed. */
static int read_messages(const struct options *o, struct message *m, size_t *n, struct error *e)
{
    char *text = NULL;
    int status;

    *n = 0;
    if (!o->prompt && !o->file)
        return error_set(e, ERR_USAGE,
                         "--print-prompt prints the prompt of -p or -f; give one of them");
    if ((status = prompt_system(o, &text, e)) < 0)
        return status;
    if (text)
        m[(*n)++] = (struct message){.role = ROLE_SYSTEM, .text = text};
    if ((status = prompt_read(o, &text, e)) == 0)
        m[(*n)++] = (struct message){.role = ROLE_USER, .text = text};
    return status;
}

static bool signalled(void *ctx)
{
    return signals_last() != 0;
}

/* text: mem_* */
static int render_messages(const struct options *o, const struct weight_file *f,
                           const struct tokenizer *t, const struct message *m, size_t n,
                           char **text, struct error *e)
{
    char name[32];
    struct stop stop = {signalled, NULL};
    struct chat_template_options chosen = {.name = chat_template_word(o, name, sizeof name),
                                           .file = o->chat_template_file,
                                           .stop = &stop};
    struct chat_template *c;
    char *globals;
    int status = chat_template_globals(o, &globals, e);

    if (status < 0)
        return status;
    chosen.globals = globals;
    status = chat_template_load(&c, f, t, &chosen, e);
    mem_free(globals);
    if (status < 0)
        return status;
    if (chat_template_notice(c))
        fprintf(stderr, "moetop: %s\n", chat_template_notice(c));
    status = chat_template_render(c, m, n, NULL, true, &stop, text, e);
    chat_template_free(c);
    return status;
}

int print_prompt_run(struct options *o, struct error *e)
{
    struct weight_file *f = NULL;
    struct tokenizer *t = NULL;
    struct message m[2];
    size_t n = 0;
    char *text = NULL;
    int status;

    signals_catch();
    status = read_messages(o, m, &n, e);
    if (status == 0 && o->raw)
        status = write_output(m[n - 1].text, strlen(m[n - 1].text), e);
    else if (status == 0 && (status = open_tokenizer(o, &f, &t, e)) == 0 &&
             (status = render_messages(o, f, t, m, n, &text, e)) == 0)
        status = write_output(text, strlen(text), e);
    mem_free(text);
    while (n)
        mem_free(m[--n].text);
    tokenizer_free(t);
    weight_file_close(f);
    return status;
}

int tokenize_run(struct options *o, struct error *e)
{
    struct weight_file *f = NULL;
    struct tokenizer *t = NULL;
    struct strbuf in = {0}, out = {0};
    int *ids = NULL, n, status = open_tokenizer(o, &f, &t, e);

    if (status == 0)
        status = read_input(&in, e);
    if (status == 0)
        status = tokenizer_encode_masked(t, in.data, in.len, o->parse_special, NULL,
                                         &(struct stop){signalled, NULL}, &ids, &n, NULL, e);
    if (status == 0) {
        strbuf_putc(&out, '[');
        for (int i = 0; i < n; i++)
            strbuf_printf(&out, i ? ", %d" : "%d", ids[i]);
        strbuf_puts(&out, "]\n");
        status = out.failed ? error_set(e, ERR_MEMORY, "out of memory for %d ids", n)
                            : write_output(out.data, out.len, e);
    }
    mem_free(ids);
    strbuf_release(&in);
    strbuf_release(&out);
    tokenizer_free(t);
    weight_file_close(f);
    return status;
}

/* One JSON array of ids. */
static int read_ids(const struct strbuf *in, const struct tokenizer *t, int **ids, int *n,
                    struct error *e)
{
    struct error why = {0};
    json_t *root = json_read(in->data, in->len, "read", &why), *v;
    size_t i, count = json_array_size(root);
    int status = 0;

    *ids = NULL;
    if (!root || !json_is_array(root) || count > INT_MAX) {
        status = error_set(e, ERR_INPUT,
                           "standard input is no JSON array of ids, such as [1, 2, 3]%s%s",
                           root ? "" : ": ", why.text);
        goto out;
    }
    *ids = mem_alloc(count, sizeof **ids);
    if (!*ids)
        status = error_set(e, ERR_MEMORY, "out of memory for %zu ids", count);
    for (i = 0; i < count && status == 0; i++) {
        v = json_array_get(root, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= tokenizer_size(t) ||
            !tokenizer_piece(t, (int)json_integer_value(v), NULL, NULL)) {
            char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);

            status = error_set(e, ERR_INPUT,
                               "element %zu, %.60s, is no id of this tokenizer (0 to %d)", i,
                               text ? text : "?", tokenizer_size(t) - 1);
            free(text);
        } else
            (*ids)[i] = (int)json_integer_value(v);
    }
    *n = (int)count;
out:
    json_decref(root);
    return status;
}

int detokenize_run(struct options *o, struct error *e)
{
    struct weight_file *f = NULL;
    struct tokenizer *t = NULL;
    struct strbuf in = {0};
    char *text = NULL;
    size_t len;
    int *ids = NULL, n = 0, status = open_tokenizer(o, &f, &t, e);

    if (status == 0)
        status = read_input(&in, e);
    if (status == 0)
        status = read_ids(&in, t, &ids, &n, e);
    if (status == 0)
        status = tokenizer_decode(t, ids, n, false, &text, &len, e);
    if (status == 0)
        status = write_output(text, len, e);
    mem_free(text);
    mem_free(ids);
    strbuf_release(&in);
    tokenizer_free(t);
    weight_file_close(f);
    return status;
}
