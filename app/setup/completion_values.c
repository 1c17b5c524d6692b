/* See completion_values.h. */
#include "app/setup/completion_values.h"

#include "app/common/devices.h"
#include "app/common/paths.h"
#include "engine/base/path.h"
#include "engine/convert/export.h"
#include "engine/placement/planner.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef void add_fn(void *ctx, const char *value);

static bool is(const struct option *option, enum option_id id)
{
    return option == &option_table[id];
}

static void add_words(const struct option *option, add_fn *add, void *ctx)
{
    char word[32];

    for (int i = 0; option_word(option, i, word, sizeof word); i++)
        add(ctx, word);
}

/* The name at the start of a syntax: "hot[:SIZE]" is hot, "memory:SIZE" is memory: with its colon.
 */
static void add_strategies(add_fn *add, void *ctx)
{
    for (int i = 0; i < n_planners; i++) {
        size_t n = strcspn(planners[i].syntax, "[:");
        char name[64];

        snprintf(name, sizeof name, "%.*s", (int)n + (planners[i].syntax[n] == ':'),
                 planners[i].syntax);
        add(ctx, name);
    }
}

static int is_yaml(const struct dirent *d)
{
    return d->d_name[0] != '.' && path_stem(d->d_name, ".yaml") &&
           /* needs no quotes */
           !d->d_name[strspn(d->d_name,
                             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")];
}

static void add_files(const char *folder, add_fn *add, void *ctx)
{
    struct dirent **found = NULL;
    int n = scandir(folder, &found, is_yaml, alphasort);

    for (int i = 0; i < n; i++) {
        found[i]->d_name[path_stem(found[i]->d_name, ".yaml")] = 0;
        add(ctx, found[i]->d_name);
        free(found[i]); /* allocated by the C library */
    }
    free(found);
}

static bool places(const struct option *option)
{
    return is(option, OPTION_ID_place) || is(option, OPTION_ID_place_prompt);
}

const char *values_folder(const struct option *option)
{
    return places(option) || is(option, OPTION_ID_compare) ? "placements"
           : is(option, OPTION_ID_theme)                   ? "themes"
                                                           : NULL;
}

int values_each(const struct option *option, bool own, add_fn *add, void *ctx)
{
    const char *kind = values_folder(option);
    char folder[PATH_MAX], below[PATH_MAX + 32];
    bool files = option->type == OPTION_PATH || places(option) || is(option, OPTION_ID_theme) ||
                 is(option, OPTION_ID_bench_compare);
    int flags = files ? VALUES_FILES : 0;

    if (option->type == OPTION_WORD || (option->type == OPTION_TEXT && *option->words))
        add_words(option, add, ctx);
    else if ((option->type == OPTION_INT || option->type == OPTION_REAL) && *option->words)
        add(ctx, option->words);
    if (places(option) || is(option, OPTION_ID_compare))
        add_strategies(add, ctx);
    if (kind && paths_data(kind, folder, sizeof folder, NULL) == 0)
        add_files(folder, add, ctx);
    if (kind && own) {
        paths_home("CONFIG", folder, sizeof folder);
        snprintf(below, sizeof below, "%s/%s", folder, kind);
        add_files(below, add, ctx);
    }
    if (is(option, OPTION_ID_place))
        add(ctx, "help");
    if (is(option, OPTION_ID_device)) {
        add(ctx, "none");
        for (int i = 0; device_backends[i + 1]; i++) { /* the last one is the CPU */
            snprintf(below, sizeof below, "%s:0", device_backends[i]->name);
            add(ctx, below);
        }
    }
    if (is(option, OPTION_ID_bench_ctk) || is(option, OPTION_ID_bench_ctv)) {
        add_words(&option_table[OPTION_ID_cache_type_k], add, ctx);
        flags |= VALUES_COMMAS;
    }
    for (int i = 0; is(option, OPTION_ID_quantize) && export_type_at(i); i++)
        add(ctx, export_type_at(i)->word);
    return flags | (is(option, OPTION_ID_compare) ? VALUES_COMMAS : 0);
}
