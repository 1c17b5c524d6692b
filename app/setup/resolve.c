/* See resolve.h. */
#include "app/setup/resolve.h"

#include "app/setup/bandwidth_auto.h"
#include "app/setup/profile_file.h"
#include "app/common/paths.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/base/strbuf.h"
#include "engine/placement/planner.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first comment line of a plan file is its description. */
static void comment_of(const char *path, char *out, size_t size)
{
    static const struct file_kind kind = {"placement", 1 << 20, ERR_USAGE};
    char *text;
    size_t n;

    out[0] = 0;
    if (file_read(path, &kind, &text, &n, NULL) < 0)
        return;
    if (text[0] == '#') {
        text[strcspn(text, "\n")] = 0;
        snprintf(out, size, "%s", text + 1 + strspn(text + 1, " "));
    }
    mem_free(text);
}

static int is_plan(const struct dirent *d)
{
    return d->d_name[0] != '.' && path_stem(d->d_name, ".yaml");
}

static void list_folder(struct strbuf *b, const char *folder)
{
    struct dirent **found = NULL;
    int n = scandir(folder, &found, is_plan, alphasort);

    for (int i = 0; i < n; i++) {
        char path[4096 + 300], what[300];

        snprintf(path, sizeof path, "%s/%s", folder, found[i]->d_name);
        comment_of(path, what, sizeof what);
        strbuf_printf(b, "%-17.*s %s\n", (int)path_stem(found[i]->d_name, ".yaml"),
                      found[i]->d_name, what);
        free(found[i]);
    }
    free(found);
}

char *place_help_text(void)
{
    struct strbuf b = {0};
    char folder[4096], line[4000];

    planner_help(line, sizeof line);
    strbuf_puts(&b, line);
    strbuf_puts(
        &b,
        "\nOf several devices (-dev opencl:0,opencl:1) a placement fills the first, then "
        "the next.\nShares by number: hot:0=4G,1=2G, layers:0=12,1=8; a SIZE alone is for each.\n");
    strbuf_puts(&b, "\nPlan files (YAML, by path or by these names):\n");
    if (paths_data("placements", folder, sizeof folder, NULL) == 0)
        list_folder(&b, folder);
    paths_home("CONFIG", folder, sizeof folder - 16);
    if (*folder) {
        strcat(folder, "/placements");
        list_folder(&b, folder);
    }
    return strbuf_take(&b, NULL);
}

int place_help_run(struct options *o, struct error *e)
{
    char *text = place_help_text();

    if (!text)
        return error_set(e, ERR_MEMORY, "out of memory");
    fputs(text, stdout);
    mem_free(text);
    return 0;
}

void place_shape(struct plan_shape *shape, const char *names[DEVICE_MAX],
                 const struct engine_info *info)
{
    const struct hparams *hp = &info->model->hp;
    int n = info->n_devices < DEVICE_MAX ? info->n_devices : DEVICE_MAX;

    names[0] = "cpu";
    names[1] = "gpu";
    for (int i = 1; i < n; i++)
        names[i] = info->devices[i].selector;
    *shape = (struct plan_shape){.n_layers = hp->n_layers,
                                 .n_experts = hp->n_experts,
                                 .gpu = 1,
                                 .devices = names,
                                 .n_devices = n > 2 ? n : 2};
}

int place_resolve(const char *text, const struct engine_info *info, struct plan **plan,
                  struct error *e)
{
    const char *names[DEVICE_MAX];
    struct planner_spec spec;
    struct plan_shape shape;
    const char *name = text;
    enum plan_phase phase = planner_phase(&name);
    char path[4096];
    int rc;

    *plan = NULL;
    if (!plan_file_find(name, path, sizeof path))
        return planner_parse_request(&spec, &phase, text, e);
    place_shape(&shape, names, info);
    rc = plan_file_read(plan, path, &shape, e);
    return rc < 0 ? rc : 1;
}

int place_save(const struct plan *p, const char *name, const struct engine_info *info,
               char *path_out, size_t size, struct error *e)
{
    const char *names[DEVICE_MAX];
    struct plan_shape shape;
    struct plan *copy;
    char path[4096 + 300], folder[4000];
    size_t n = strlen(name);
    bool has_end = path_stem(name, ".yaml");
    int rc;

    if (!n || n > 200)
        return error_set(e, ERR_USAGE, "/place save: give a name, for example /place save mine");
    if (strchr(name, '/')) {
        snprintf(path, sizeof path, "%s%s", name, has_end ? "" : ".yaml");
    } else {
        if (planner_find(name, strcspn(name, ":")))
            return error_set(e, ERR_USAGE,
                             "/place save: '%s' is the name of a strategy; choose another", name);
        paths_home("CONFIG", folder, sizeof folder - 16);
        if (!*folder)
            return error_set(e, ERR_IO, "/place save: there is no home directory; give a path");
        strcat(folder, "/placements");
        if ((rc = file_make_folders(folder, e)) < 0)
            return rc;
        snprintf(path, sizeof path, "%s/%s%s", folder, name, has_end ? "" : ".yaml");
    }
    if (!(copy = plan_copy(p)))
        return error_set(e, ERR_MEMORY, "out of memory for the plan");
    if (!strchr(name, '/'))
        snprintf(copy->name, sizeof copy->name, "%.*s", (int)(n - (has_end ? 5 : 0)), name);
    place_shape(&shape, names, info);
    rc = plan_file_write(copy, path, &shape, e);
    plan_free(copy);
    if (rc == 0 && path_out)
        snprintf(path_out, size, "%s", path);
    return rc;
}

static int plan_set(struct engine *g, enum plan_phase phase, struct plan *p, struct error *e)
{
    return phase == PHASE_PROMPT ? engine_prompt_plan_set(g, p, e) : engine_plan_set(g, p, e);
}

int place_apply(struct engine *g, const char *text, struct error *e)
{
    const char *name = text;
    enum plan_phase phase = planner_phase(&name);
    struct plan *plan;
    int rc = place_resolve(text, engine_info(g), &plan, e);

    if (rc >= 0)
        rc = rc ? plan_set(g, phase, plan, e) : engine_place(g, text, e);
    return rc < 0 ? rc : engine_settle(g, e);
}

/* The user's text for prompts alone. */
static int prompt_apply(struct engine *g, const char *text, struct error *e)
{
    char request[4096];

    if (snprintf(request, sizeof request, "prompt %s", text) >= (int)sizeof request)
        return error_set(e, ERR_USAGE, "placement '%.40s...': too long", text);
    return place_apply(g, request, e);
}

static int copy_set(struct engine *g, enum plan_phase phase, const struct plan *p, struct error *e)
{
    struct plan *copy = plan_copy(p);
    int rc;

    if (!copy)
        return error_set(e, ERR_MEMORY, "out of memory for a plan");
    rc = plan_set(g, phase, copy, e);
    return rc < 0 ? rc : engine_settle(g, e);
}

int place_plan(struct engine *g, const struct plan *p, struct error *e)
{
    return copy_set(g, PHASE_TOKENS, p, e);
}

void place_restore(struct engine *g, struct plan *p, struct plan *prompts)
{
    if (engine_prompt_plan(g))
        engine_prompt_plan_set(g, NULL, NULL);
    if (p)
        engine_plan_set(g, p, NULL);
    if (prompts)
        engine_prompt_plan_set(g, prompts, NULL);
    engine_settle(g, NULL);
}

static int phase_kept(struct engine *g, enum plan_phase phase, const char *text, struct plan **kept,
                      struct error *e)
{
    const struct plan *now = phase == PHASE_PROMPT ? engine_prompt_plan(g) : engine_plan(g);
    struct planner_spec spec;
    int rc;

    if (*kept && now && plan_equal(*kept, now) && strcmp((*kept)->name, now->name) == 0)
        return 0;
    if (*kept)
        return copy_set(g, phase, *kept, e);
    rc = phase == PHASE_PROMPT ? prompt_apply(g, text, e) : place_apply(g, text, e);
    if (rc == 0 && !(planner_parse(&spec, text, NULL) == 0 && spec.planner->replans))
        *kept = plan_copy(phase == PHASE_PROMPT ? engine_prompt_plan(g) : engine_plan(g));
    return rc;
}

int place_kept(struct engine *g, const char *text, struct plan **kept, struct error *e)
{
    return phase_kept(g, PHASE_TOKENS, text, kept, e);
}

static bool says_same(const char *text)
{
    return !text || !*text || strcmp(text, PLANNER_SAME) == 0;
}

int place_prompt_kept(struct engine *g, const char *text, struct plan **kept, struct error *e)
{
    int rc;

    if (!says_same(text) || (kept && *kept))
        return phase_kept(g, PHASE_PROMPT, text, kept, e);
    if (!engine_prompt_plan(g))
        return 0;
    if (kept) { /* the strategy for tokens gave prompts a plan of their own */
        *kept = plan_copy(engine_prompt_plan(g));
        return *kept ? 0 : error_set(e, ERR_MEMORY, "out of memory for a plan");
    }
    rc = engine_prompt_plan_set(g, NULL, e);
    return rc < 0 ? rc : engine_settle(g, e);
}

const char *place_names(const struct engine *g, char out[PLACE_NAMES])
{
    const struct plan *prompts = engine_prompt_plan(g);

    if (prompts && strcmp(prompts->name, engine_plan(g)->name) == 0)
        prompts = NULL; /* one strategy, which decided for each phase */
    snprintf(out, PLACE_NAMES, "%s%s%s", engine_plan(g)->name, prompts ? ", prompts " : "",
             prompts ? prompts->name : "");
    return out;
}

int placement_request_init(struct placement_request *w, const struct options *o,
                           const char *cache_dir, struct error *e)
{
    *w = (struct placement_request){
        .place = mem_string(o->place),
        .prompt = says_same(o->place_prompt) ? NULL : mem_string(o->place_prompt),
        .profile = mem_string(o->profile),
        .script = mem_string(o->place_script),
        .cache_dir = mem_string(cache_dir),
        .bandwidth = o->bandwidth};
    if (!w->place == !o->place && !w->prompt == says_same(o->place_prompt) &&
        !w->profile == !o->profile && !w->script == !o->place_script && !w->cache_dir == !cache_dir)
        return 0;
    placement_request_release(w);
    return error_set(e, ERR_MEMORY, "out of memory");
}

void placement_request_release(struct placement_request *w)
{
    mem_free(w->place);
    mem_free(w->prompt);
    mem_free(w->profile);
    mem_free(w->script);
    mem_free(w->cache_dir);
    *w = (struct placement_request){0};
}

/* Opening a driver takes longer than the first answer may: if the cache has no result at all, no
 * device is opened. */
static bool any_verdict(const char *cache_dir)
{
    struct dirent *d;
    bool found = false;
    DIR *dir;

    if (!cache_dir || !(dir = opendir(cache_dir)))
        return false;
    while (!found && (d = readdir(dir)))
        found = strncmp(d->d_name, "verdict-", 8) == 0;
    closedir(dir);
    return found;
}

static int apply_profile(struct engine *g, const char *path, struct error *e)
{
    const struct model *m = engine_info(g)->model;
    const struct hparams *hp = &m->hp;
    struct profile_facts facts;
    struct usage u;
    char name[200];
    int rc = profile_read(&u, &facts, path, e);

    if (rc < 0)
        return rc;
    snprintf(name, sizeof name, "%.150s, %s", m->name, dtype_info(m->type)->word);
    if ((rc = profile_spread(&u, &facts, hp, e)) == 0)
        rc = profile_check(&u, &facts, path, name, m->hash, hp->n_layers, hp->n_experts,
                           hp->n_experts_used, e);
    if (rc == 0)
        rc = engine_profile_set(g, u.count, e);
    usage_release(&u);
    profile_facts_release(&facts);
    return rc;
}

int place_opened(void *ctx, struct engine *g, struct error *e)
{
    const struct placement_request *w = ctx;
    bool measured = any_verdict(w->cache_dir);
    const char *place = w->place ? w->place : measured ? "auto" : "cpu";
    int rc = w->profile ? apply_profile(g, w->profile, e) : 0;

    /* auto's measurement waits until the first answer is given (place_auto_due) */
    if (rc == 0 && strcmp(place, "cpu") != 0 && (strcmp(place, "auto") != 0 || measured))
        rc = place_apply(g, place, e);
    if (rc == 0 && w->prompt)
        rc = prompt_apply(g, w->prompt, e);
    if (rc == 0 && w->script)
        rc = engine_script_set(g, w->script, e);
    if (rc == 0 && w->bandwidth)
        rc = place_bandwidth(g, (enum bandwidth_mode)w->bandwidth, e);
    return rc;
}
