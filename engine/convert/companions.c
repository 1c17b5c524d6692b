/* See companions.h. */
#include "engine/convert/companions.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Neither weights, nor what says where they are. */
static bool is_companion(const char *name)
{
    static const char *const weights[] = {".safetensors", ".gguf",      ".bin",      ".index.json",
                                          ".onnx",        ".onnx_data", ".onnx.data"};

    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        if (path_stem(name, weights[i]))
            return false;
    return name[0] != '.';
}

int companions_copy(const char *in, const char *out, struct error *e)
{
    static const struct file_kind kind = {"file of a model", (size_t)1 << 30, ERR_MODEL};
    DIR *d = opendir(in);
    struct dirent *entry;
    int rc = d ? 0 : error_set(e, ERR_IO, "%s: cannot open: %s", in, strerror(errno));

    while (!rc && (entry = readdir(d))) {
        char from[PATH_MAX + 300], to[PATH_MAX + 300], *text = NULL;
        struct stat st;
        size_t n;

        snprintf(from, sizeof from, "%s/%s", in, entry->d_name);
        snprintf(to, sizeof to, "%s/%s", out, entry->d_name);
        if (!is_companion(entry->d_name) || stat(from, &st) || !S_ISREG(st.st_mode))
            continue;
        if ((rc = file_read(from, &kind, &text, &n, e)) == 0)
            rc = file_replace(to, text, n, e);
        mem_free(text);
    }
    if (d)
        closedir(d);
    return rc;
}
