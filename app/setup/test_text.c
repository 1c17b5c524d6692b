/* See test_text.h. */
#include "app/setup/test_text.h"

#include "app/common/paths.h"
#include "app/common/signals.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int test_text_read(const char *path, char **out, size_t *n, struct error *e)
{
    static const struct file_kind kind = {"text for measuring", (size_t)64 << 20, ERR_IO};

    if (strcmp(path, "-") == 0)
        return file_drain(STDIN_FILENO, "standard input", &kind, signals_last, out, n, e);
    return file_read(path, &kind, out, n, e);
}

int test_prompts_read(const char *name, char path[4096], char **out, size_t *n, struct error *e)
{
    int rc = 0;

    *out = NULL;
    if (!name || strcmp(name, TEST_TEXT_DEFAULT) == 0)
        rc = paths_data("bench/prompts.txt", path, 4096, e);
    else
        snprintf(path, 4096, "%s", name);
    return rc < 0 ? rc : test_text_read(path, out, n, e);
}

char *test_text_line(char **rest)
{
    for (char *line = *rest; line; line = *rest) {
        char *end = strchr(line, '\n');
        size_t n;

        if (end)
            *end = 0;
        *rest = end ? end + 1 : NULL;
        n = strlen(line);
        if (n && line[n - 1] == '\r')
            line[n - 1] = 0;
        if (line[strspn(line, " \t\r")] && line[0] != '#')
            return line;
    }
    return NULL;
}

int test_text_ids(const char *name, const struct tokenizer *t, int **ids, int *n, struct error *e)
{
    char path[4096], *text = NULL;
    size_t len;
    int rc;

    *ids = NULL;
    *n = 0;
    if (!t)
        return error_set(e, ERR_MODEL, "the model has no tokenizer; measure with --routing random");
    rc = test_prompts_read(name, path, &text, &len, e);
    if (rc == 0)
        rc = tokenizer_encode(t, text, len, false, ids, n, e);
    mem_free(text);
    if (rc == 0 && *n == 0)
        return error_set(e, ERR_INPUT, "%s: no text in it", path);
    return rc;
}
