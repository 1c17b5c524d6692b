/* From options to the structs of the engine, shared by every mode that runs a model. The thread
 * that owns the options; data for another thread is copied. Separate from the modes so that an
 * option means the same in one-shot, batch, comparison and chat. */
#include "app/setup/parallel.h"
#include "app/setup/engine_options.h"

#include "app/common/devices.h"
#include "app/lab/routing.h"
#include "app/setup/fit_remedy.h"
#include "app/setup/resolve.h"
#include "app/setup/remarks.h"
#include "app/common/memory_left.h"
#include "app/common/paths.h"
#include "app/common/signals.h"
#include "app/common/wrong_device.h"
#include "engine/base/cache.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- numbers ---- */

double pace_from_options(const struct options *o, bool chat)
{
    return chat || o->origin[OPTION_ID_pace].from > ORIGIN_MODEL ? o->pace : 0;
}

/* ---- the engine ---- */

struct progress {
    uint64_t started, drawn;
    bool shown;
};

/* A line on a terminal's stderr if loading takes noticeable time; a signal cancels. */
static int on_progress(void *ctx, uint64_t done, uint64_t total)
{
    static struct progress p;
    uint64_t now = clock_now();

    if (signals_last())
        return 1;
    if (!isatty(STDERR_FILENO))
        return 0;
    if (!p.started)
        p.started = now;
    if (done >= total) {
        if (p.shown)
            fprintf(stderr, "\r%40s\r", "");
        p.shown = false;
    } else if (now - p.started > 300 * CLOCK_MILLI && now - p.drawn > 100 * CLOCK_MILLI && total) {
        fprintf(stderr, "\rloading %3.0f %% of %.1f GiB ", 100.0 * (double)done / (double)total,
                (double)total / (1 << 30));
        p.shown = true;
        p.drawn = now;
    }
    return 0;
}

/* Used also without a progress line. */
static bool on_stop(void *ctx)
{
    return signals_last() != 0;
}

/* The engine's messages are in the log already. */
static void on_log(void *ctx, const char *line)
{
    fprintf(stderr, "moetop: %s\n", line);
}

static void on_remark(void *ctx, const char *line)
{
    log_write(LOG_LEVEL_INFO, "%s", line);
    on_log(ctx, line);
}

static void on_wrong(void *ctx, const char *line)
{
    wrong_device_note(line);
}

static uint64_t on_memory(void *ctx)
{
    return memory_left("");
}

static uint64_t on_stalls(void *ctx)
{
    return memory_stalled("");
}

static int conversion(const struct options *o)
{
    char word[16];

    option_word(&option_table[OPTION_ID_dtype], o->dtype, word, sizeof word);
    return dtype_from_word(word); /* -1 for "keep" */
}

/* A first answer starts before the weights are packed; measurements, and runs that use another
 * device at once, wait for packing. So does a server: its clients may leave no idle time to pack
 * in. */
static bool answers_at_once(const struct options *o)
{
    return !o->bench && !o->microbench && !o->compare && !o->profile_experts && !o->suggest &&
           !o->batch && !o->serve && !o->price && !o->spec_sweep &&
           !(o->place_script && *o->place_script) &&
           (!o->place || !*o->place || strcmp(o->place, "cpu") == 0) &&
           (!o->place_prompt || !*o->place_prompt || strcmp(o->place_prompt, "same") == 0);
}

/* Measurements run without drafts unless these are requested. */
static bool drafts(const struct options *o)
{
    bool measures = o->bench || o->microbench || o->compare || o->profile_experts || o->suggest;

    if (o->routing_replay) /* what is drafted need not be the trace's */
        return false;
    return !measures || o->origin[OPTION_ID_spec_type].from == ORIGIN_FLAG ||
           o->origin[OPTION_ID_model_draft].from == ORIGIN_FLAG ||
           o->origin[OPTION_ID_medusa].from == ORIGIN_FLAG;
}

const char *chat_template_word(const struct options *o, char *word, size_t size)
{
    if (!o->chat_template) /* the first word: the model's own */
        return NULL;
    option_word(&option_table[OPTION_ID_chat_template], o->chat_template, word, size);
    return word;
}

/* Names of the template variables that turn thinking on and off. */
static const char *const thinking[] = {"enable_thinking", "thinking"};

static int add_reasoning(const struct options *o, json_t *all)
{
    int rc = 0;

    for (size_t i = 0; i < sizeof thinking / sizeof *thinking; i++)
        if (!json_object_get(all, thinking[i]))
            rc |= json_object_set_new(all, thinking[i], json_boolean(o->reasoning == REASONING_ON));
    return rc;
}

int chat_template_globals(const struct options *o, char **json, struct error *e)
{
    const char *given = o->chat_template_kwargs && *o->chat_template_kwargs
                            ? o->chat_template_kwargs
                            : NULL;
    json_t *all;
    char *text = NULL;

    *json = NULL;
    if (!given && o->reasoning == REASONING_AUTO)
        return 0;
    all = given ? json_read(given, strlen(given), "--chat-template-kwargs", e) : json_object();
    if (given && !all)
        return e->code = ERR_USAGE;
    if (all && !json_is_object(all)) {
        json_decref(all);
        return error_set(
            e, ERR_USAGE,
            "--chat-template-kwargs: no JSON object; write {\"enable_thinking\": false}");
    }
    if (all && (o->reasoning == REASONING_AUTO || add_reasoning(o, all) == 0))
        text = json_dumps(all, JSON_COMPACT);
    *json = text ? mem_string(text) : NULL;
    free(text);
    json_decref(all);
    return *json ? 0 : error_set(e, ERR_MEMORY, "out of memory for the chat template's values");
}

static int expert_cache_size(const struct options *o, struct engine_setup *s, struct error *e)
{
    const char *text = o->expert_cache;

    s->page_auto = !text || strcmp(text, "auto") == 0;
    if (s->page_auto || strcmp(text, "off") == 0)
        return 0;
    if (option_parse_size(text, &s->config.expert_cache, e) < 0 || !s->config.expert_cache)
        return error_set(e, ERR_USAGE,
                         "--expert-cache %s: a size (4G, 600M), auto or off is expected", text);
    return 0;
}

/* Measurements neither store computed state nor reuse it. */
static bool keeps_prompts(const struct options *o)
{
    return o->prompt_cache && *o->prompt_cache && !o->bench && !o->microbench && !o->compare &&
           !o->profile_experts && !o->suggest && !o->price && !o->batch_experts &&
           !routing_hooks_get();
}

static int prompt_cache_of(const struct options *o, struct engine_setup *s, struct error *e)
{
    const char *size = o->prompt_cache_size && *o->prompt_cache_size ? o->prompt_cache_size : "8G";
    uint64_t bytes;

    if (option_parse_size(size, &bytes, e) < 0 || !bytes)
        return error_set(e, ERR_USAGE, "--prompt-cache-size %s: a size (600M, 8G) is expected",
                         size);
    s->config.prompt_cache_bytes = bytes;
    if (!keeps_prompts(o))
        return 0;
    if (!(s->prompt_cache = mem_string(o->prompt_cache)))
        return error_set(e, ERR_MEMORY, "out of memory");
    s->config.prompt_cache = s->prompt_cache;
    return 0;
}

#define WARM_WEIGHTS ((uint64_t)4 << 30)

int engine_setup_warm(const struct options *o, struct engine_setup *s, struct error *e)
{
    bool asked = o->origin[OPTION_ID_warm_chats].from != ORIGIN_DEFAULT;
    char folder[PATH_MAX], below[PATH_MAX + 8];

    paths_home("STATE", folder, sizeof folder);
    if (s->config.prompt_cache || !o->warm_chats || !folder[0] || routing_hooks_get())
        return 0;
    snprintf(below, sizeof below, "%s/warm/", folder);
    file_make_folders(below, NULL);
    below[strlen(below) - 1] = 0;
    if (!(s->prompt_cache = mem_string(below)))
        return error_set(e, ERR_MEMORY, "out of memory");
    s->config.prompt_cache = s->prompt_cache;
    s->config.prompt_cache_optional = true;
    s->config.prompt_cache_tokens = o->warm_chats;
    s->config.prompt_cache_weights = asked ? 0 : WARM_WEIGHTS;
    return 0;
}

int engine_setup_init(const struct options *o, struct engine_setup *s, struct error *e)
{
    uint64_t available = fit_available();
    struct grammar *grammar;
    int rc;

    *s = (struct engine_setup){0};
    if ((rc = parallel_check(o, e)) < 0 || (rc = sampling_options_check(o, e)) < 0 ||
        (rc = grammar_from_options(o, &grammar, e)) < 0)
        return rc;
    grammar_free(grammar); /* only validated here */
    if ((rc = paths_model(o->model, s->model_path, sizeof s->model_path, e)) < 0)
        return rc;
    option_word(&option_table[OPTION_ID_kernels], o->kernels, s->kernels, sizeof s->kernels);
    s->config = (struct engine_config){
        .model_path = s->model_path,
        .context = o->ctx_size,
        .n_threads = o->threads,
        .sessions = parallel_sessions(o),
        .batch = o->batch_size,
        .ubatch = o->ubatch_size,
        .defer_experts = o->defer_experts,
        .experts_used = o->experts_used,
        .experts_least = (float)o->experts_weight,
        .kv_k = (enum kv_type)o->cache_type_k,
        .kv_v = (enum kv_type)o->cache_type_v,
        .convert = conversion(o),
        .memory = available == UINT64_MAX ? 0 : available,
        .exact = o->exact,
        .float_library = o->float_gemm,
        .tune = (enum device_tune)o->tune,
        .background = answers_at_once(o),
        .kernels = o->kernels ? s->kernels : NULL,
        .drafting = {.n_max = o->spec_draft_n_max,
                     .alpha = (float)o->spec_alpha,
                     .all = o->spec_sweep != NULL,
                     .medusa = {o->medusa, o->medusa_heads, (enum medusa_init)o->medusa_init}},
        .backends = device_backends,
        .cache_dir = paths_cache(o->cache_dir),
        .chat_template = chat_template_word(o, s->chat_template, sizeof s->chat_template),
        .chat_optional = o->raw || o->bench || o->microbench,
        .audit = o->audit,
        .wrong = on_wrong,
        .opened = place_opened,
        .opened_ctx = &s->request,
        .routing = routing_hooks_get(),
        .stop = on_stop,
        .memory_left = on_memory,
        .memory_stalled = on_stalls,
    };
    if ((rc = acceptance_parse(o->spec_accept ? o->spec_accept : "prefix",
                               &s->config.drafting.accept, e)) < 0)
        return rc;
    if (o->spec_synth_rates) {
        if ((rc = acceptance_rates_parse(o->spec_synth_rates, s->config.drafting.synthetic,
                                         DRAFT_MOST, e)) < 0)
            return rc;
        s->config.drafting.n_synthetic = rc;
    }
    if (drafts(o))
        option_word(&option_table[OPTION_ID_spec_type], o->spec_type, s->config.drafting.type,
                    sizeof s->config.drafting.type);
    if (o->model_draft && drafts(o)) {
        if ((rc = paths_model(o->model_draft, s->draft_path, sizeof s->draft_path, e)) < 0)
            return error_prefix(e, "-md");
        s->config.drafting.model = s->draft_path;
    }
    s->config.expert_edits = routing_edits(&s->config.n_expert_edits);
    s->device = mem_string(o->device);
    s->chat_template_file = mem_string(o->chat_template_file);
    s->config.device_selector = s->device;
    s->config.chat_template_file = s->chat_template_file;
    if ((rc = expert_cache_size(o, s, e)) == 0 && (rc = prompt_cache_of(o, s, e)) == 0)
        rc = chat_template_globals(o, &s->template_globals, e);
    s->config.chat_template_globals = s->template_globals;
    if (rc == 0 && (rc = override_list_init(&s->overrides, o, e)) == 0 && s->overrides.all.n)
        s->config.overrides = &s->overrides.all;
    if (rc == 0 && (rc = adapter_list_init(&s->adapters, o, e)) == 0) {
        s->config.adapters = s->adapters.all;
        s->config.n_adapters = s->adapters.n;
    }
    if (rc == 0 && (rc = control_list_init(&s->control, o, e)) == 0) {
        s->config.control = s->control.files.all;
        s->config.n_control = s->control.files.n;
        s->config.control_first = s->control.first;
        s->config.control_last = s->control.last;
    }
    if (!s->device != !o->device || !s->chat_template_file != !o->chat_template_file)
        rc = error_set(e, ERR_MEMORY, "out of memory");
    if (rc < 0 || (rc = placement_request_init(&s->request, o, s->config.cache_dir, e)) < 0)
        engine_setup_release(s);
    return rc;
}

void engine_setup_release(struct engine_setup *s)
{
    placement_request_release(&s->request);
    mem_free(s->device);
    mem_free(s->prompt_cache);
    mem_free(s->chat_template_file);
    mem_free(s->template_globals);
    override_list_release(&s->overrides);
    adapter_list_release(&s->adapters);
    adapter_list_release(&s->control.files);
    s->device = s->prompt_cache = s->chat_template_file = s->template_globals = NULL;
}

int engine_setup_prepare(const struct options *o, struct engine_setup *s, bool progress,
                         struct error *e)
{
    int rc = engine_setup_init(o, s, e);

    if (rc < 0)
        return rc;
    if (progress) {
        s->config.progress = on_progress;
        s->config.log = on_log;
    }
    if ((o->device && (rc = devices_check(o->device, e)) < 0) ||
        (rc = fit_require(&s->config, o->force, s->page_auto, e)) < 0)
        engine_setup_release(s);
    return rc;
}

int engine_setup_open(const struct options *o, struct engine **out, struct error *e)
{
    struct engine_setup s;
    int rc;

    signals_catch();
    if ((rc = engine_setup_prepare(o, &s, true, e)) < 0)
        return rc;
    rc = engine_open(out, &s.config, e);
    if (rc == 0 && !s.config.background) /* nobody waits for a first token */
        engine_tune(*out);
    engine_setup_release(&s); /* the engine has copies of what it still needs */
    if (rc < 0)
        return rc;
    engine_pace_set(*out, pace_from_options(o, false));
    remarks_each(o, engine_info(*out), on_remark, NULL);
    return 0;
}
