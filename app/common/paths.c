/* Where the program's own files are: beside the executable in a source tree, under share/moetop when installed. Main thread.
 * The place is derived from /proc/self/exe first, so that a tree or an installed prefix may be moved as a whole. */
#include "app/setup/engine_options.h"
#include "app/options/config.h"
#include "engine/base/file.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUNDLED_MODEL "models/tiny-storyteller-Q8_0.gguf"

/* Folders that may hold the data, in order of preference. NULL past the end. */
static const char *candidate(int i, const char *exe_dir, char *out, size_t size)
{
    switch (i) {
    case 0: snprintf(out, size, "%s/configs", exe_dir); break;             /* ./moetop */
    case 1: snprintf(out, size, "%s/../../configs", exe_dir); break;       /* build/MODE/moetop, build/MODE/tests */
    case 2: snprintf(out, size, "%s/../../../configs", exe_dir); break;
    case 3: snprintf(out, size, "%s/../share/moetop", exe_dir); break;     /* PREFIX/bin/moetop */
    case 4: snprintf(out, size, "%s/share/moetop", MOETOP_PREFIX); break;
    default: return NULL;
    }
    return out;
}

int app_data_path(const char *below, char *out, size_t size, struct error *e)
{
    char exe[PATH_MAX], dir[PATH_MAX + 64], full[PATH_MAX + 256], *slash;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);

    exe[n > 0 ? n : 0] = 0;
    if ((slash = strrchr(exe, '/')))
        *slash = 0;
    for (int i = 0; candidate(i, exe, dir, sizeof dir); i++) {
        if (snprintf(full, sizeof full, "%s/%s", dir, below) >= (int)sizeof full || access(full, R_OK) < 0)
            continue;
        if (snprintf(out, size, "%s", full) >= (int)size)
            break;
        return 0;
    }
    return error_set(e, ERR_IO, "%s is neither beside %s/moetop nor under %s/share/moetop; reinstall moetop", below, exe, MOETOP_PREFIX);
}

int app_model_path(const struct options *o, char *out, size_t size, bool *bundled, struct error *e)
{
    struct error why = {0};

    if (bundled)
        *bundled = !o->model;
    if (!o->model) {
        if (app_data_path(BUNDLED_MODEL, out, size, &why) < 0)
            return error_set(e, ERR_MODEL, "the bundled model: %s, or name a model with -m", why.text);
        return 0;
    }
    if (!*o->model)
        return error_set(e, ERR_USAGE, "-m: the name is empty");
    if (access(o->model, F_OK) < 0)
        return error_set(e, ERR_MODEL, "%s: %s", o->model, strerror(errno));
    if (snprintf(out, size, "%s", o->model) >= (int)size)
        return error_set(e, ERR_MODEL, "the model's name is too long");
    return 0;
}

void app_history_path(char *out, size_t size)
{
    char folder[PATH_MAX - 16];
    struct stat st;

    out[0] = 0;
    config_home("STATE", folder, sizeof folder);
    if (!folder[0] || file_make_folders(folder, NULL) < 0)
        return;
    snprintf(out, size, "%s/history", folder);
    if (stat(out, &st) == 0 && !S_ISREG(st.st_mode))     /* readline would wait for a pipe */
        out[0] = 0;
}
