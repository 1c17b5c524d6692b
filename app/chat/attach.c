/* See attach.h. */
#include "app/chat/attach.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/text/tokenizer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BYTES_MOST ((size_t)1 << 20)
#define COUNT_MOST ((size_t)32 << 10) /* longer texts are not tokenized at every key */

int attach_read(const char *path, char **text, size_t *n, struct error *e)
{
    static const struct file_kind kind = {"text file", BYTES_MOST, ERR_INPUT};
    int rc = file_read(path, &kind, text, n, e);

    if (rc == 0 && (memchr(*text, 0, *n) || !utf8_valid(*text, *n))) {
        mem_free(*text);
        *text = NULL;
        return error_set(e, ERR_INPUT, "%s is no text in UTF-8", path);
    }
    return rc;
}

/* The next @NAME at or after *at that names a file: *at is advanced past it. */
static bool next_name(const char *message, size_t *at, char *path, size_t size)
{
    for (const char *p = message + *at; (p = strchr(p, '@')); p++) {
        size_t n = strcspn(p + 1, " \t\n");
        struct stat st;

        if (p > message && !strchr(" \t\n", p[-1]))
            continue;
        while (n && strchr(".,;:!?)", p[n])) { /* "." ends the sentence, unless the file has one */
            snprintf(path, size, "%.*s", n < size ? (int)n : 0, p + 1);
            if (stat(path, &st) == 0)
                break;
            n--;
        }
        snprintf(path, size, "%.*s", n < size ? (int)n : 0, p + 1);
        if (!n || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        *at = (size_t)(p - message) + 1 + n;
        return true;
    }
    return false;
}

int attach_expand(const char *message, char **out, struct error *e)
{
    struct strbuf b = {0};
    char path[PATH_MAX], *text;
    size_t at = 0, n;
    int rc = 0, files = 0;

    *out = NULL;
    strbuf_puts(&b, message);
    while (rc == 0 && next_name(message, &at, path, sizeof path)) {
        if ((rc = attach_read(path, &text, &n, e)) < 0)
            break;
        while (n && text[n - 1] == '\n')
            n--;
        strbuf_printf(&b, "\n\n%s:\n```\n", path);
        strbuf_put(&b, text, n);
        strbuf_puts(&b, "\n```");
        mem_free(text);
        files++;
    }
    if (rc == 0 && b.failed)
        rc = error_set(e, ERR_MEMORY, "out of memory for the message");
    if (rc == 0 && files)
        *out = mem_string(b.data);
    strbuf_release(&b);
    return rc;
}

void attach_count(const struct engine_info *info, const char *text, size_t n, char *out,
                  size_t size)
{
    size_t lines = n > 0;
    int tokens = -1, *ids = NULL;
    struct error e;

    for (size_t i = 0; i + 1 < n; i++)
        lines += text[i] == '\n';
    if (info && info->tokenizer && n <= COUNT_MOST &&
        tokenizer_encode(info->tokenizer, text, n, false, &ids, &tokens, &e) < 0)
        tokens = -1;
    mem_free(ids);
    if (tokens >= 0)
        snprintf(out, size, "%zu line%s, %d tokens", lines, lines == 1 ? "" : "s", tokens);
    else
        snprintf(out, size, "%zu line%s, about %zu tokens", lines, lines == 1 ? "" : "s", n / 4);
    if (info)
        snprintf(out + strlen(out), size - strlen(out), " of %d", info->context);
}

void attach_describe(const struct engine_info *info, const char *message, size_t len,
                     struct strbuf *b)
{
    char path[PATH_MAX], count[96], *whole = mem_string_n(message, len), *text;
    size_t at = 0, n, lines = 1;
    struct error e;

    while (whole && next_name(whole, &at, path, sizeof path)) {
        strbuf_puts(b, b->len ? "\n" : "");
        if (attach_read(path, &text, &n, &e) < 0) {
            strbuf_puts(b, e.text);
            continue;
        }
        attach_count(info, text, n, count, sizeof count);
        strbuf_printf(b, "@%s: %s", path, count);
        mem_free(text);
    }
    for (size_t i = 0; i < len; i++)
        lines += message[i] == '\n';
    if (lines > 3 || len > 600) {
        attach_count(info, message, len, count, sizeof count);
        strbuf_printf(b, "%s%s", b->len ? "\n" : "", count);
    }
    mem_free(whole);
}
