/* From options to the structs of the engine: what every mode that runs a model shares. The thread that owns the options; what it makes for
 * another thread holds copies.
 * Kept apart from the modes so that one-shot, batch, comparison and chat cannot differ in what an option means. */
#include "app/setup/engine_options.h"

#include "app/options/config.h"
#include "app/devices.h"
#include "app/setup/fit.h"
#include "app/setup/resolve.h"
#include "app/setup/remarks.h"
#include "engine/base/cache.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define PROMPT_BYTES_MAX (64u << 20)

/* ---- texts ---- */

/* Everything of a file, a pipe or standard input ("-"), one line end at the end dropped. */
static int read_text(const char *path, char **out, struct error *e)
{
    static const struct file_kind kind = {"prompt", PROMPT_BYTES_MAX, ERR_USAGE};
    bool standard = !strcmp(path, "-");
    const char *name = standard ? "standard input" : path;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC), rc;     /* waits for a pipe's writer */
    char *text;
    size_t n;

    if (fd < 0)
        return errno == EINTR ? error_set(e, ERR_CANCELLED, "interrupted") : error_set(e, ERR_IO, "%s: %s", path, strerror(errno));
    rc = file_drain(fd, name, &kind, app_signal, &text, &n, e);
    if (!standard)
        close(fd);
    if (rc < 0)
        return rc;
    if (strlen(text) != n) {
        rc = error_set(e, ERR_USAGE, "%s: byte %zu is zero; a text is expected", name, strlen(text) + 1);
        mem_free(text);
        return rc;
    }
    if (n && text[n - 1] == '\n')
        text[--n] = 0;
    if (n && text[n - 1] == '\r')
        text[--n] = 0;
    *out = text;
    return 0;
}

/* -e: \n, \t, \r, \\, \", \' become what they stand for; any other backslash stays. In place. */
static void unescape(char *text)
{
    static const char from[] = "ntr\\\"'", to[] = "\n\t\r\\\"'";
    char *w = text;

    for (const char *p = text; *p; p++) {
        const char *known = *p == '\\' && p[1] ? strchr(from, p[1]) : NULL;

        *w++ = known ? to[known - from] : *p;
        p += known != NULL;
    }
    *w = 0;
}

/* -p A -f B: A, an empty line, B. */
static char *join(const char *a, const char *b)
{
    size_t size = strlen(a) + strlen(b) + 3;
    char *out = mem_alloc(size, 1);

    if (out)
        snprintf(out, size, "%s\n\n%s", a, b);
    return out;
}

int app_prompt(const struct options *o, char **out, struct error *e)
{
    char *text = NULL, *more = NULL, *both;
    int rc = 0;

    *out = NULL;
    if (o->prompt && !strcmp(o->prompt, "-")) {
        if (o->file && !strcmp(o->file, "-"))
            return error_set(e, ERR_USAGE, "-p - and -f - both ask for standard input; give one of them");
        rc = read_text("-", &text, e);
    } else if (o->prompt && !(text = mem_string(o->prompt))) {
        rc = error_set(e, ERR_MEMORY, "out of memory");
    } else if (text && o->escape) {
        unescape(text);
    }
    if (rc == 0 && o->file && (rc = read_text(o->file, &more, e)) == 0) {
        both = text ? join(text, more) : more;
        if (!both)
            rc = error_set(e, ERR_MEMORY, "out of memory");
        if (both != more)
            mem_free(more);
        mem_free(text);
        text = both;
    }
    if (rc < 0) {
        mem_free(text);
        return rc;
    }
    *out = text;
    return 0;
}

int app_system_prompt(const struct options *o, char **out, struct error *e)
{
    *out = NULL;
    /* Where both are given, the one from the stronger source counts. */
    if (o->system_prompt_file && *o->system_prompt_file &&
        (!o->system_prompt || o->origin[OPTION_ID_system_prompt_file].from >= o->origin[OPTION_ID_system_prompt].from))
        return read_text(o->system_prompt_file, out, e);
    if (!o->system_prompt || !*o->system_prompt)
        return 0;
    if (!(*out = mem_string(o->system_prompt)))
        return error_set(e, ERR_MEMORY, "out of memory");
    if (o->escape)
        unescape(*out);
    return 0;
}

/* ---- numbers ---- */

static uint64_t fresh_seed(void)
{
    uint64_t seed;
    struct timespec t;

    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        clock_gettime(CLOCK_REALTIME, &t);
        seed = (uint64_t)t.tv_sec * 1000000007u ^ (uint64_t)t.tv_nsec << 20 ^ (uint64_t)getpid();
    }
    return seed >> 32;           /* short enough to be read and typed back */
}

void app_sampling(const struct options *o, struct sampling *s)
{
    *s = (struct sampling){
        .temperature = (float)o->temp, .top_k = o->top_k, .top_p = (float)o->top_p, .min_p = (float)o->min_p,
        .repeat_penalty = (float)o->repeat_penalty, .repeat_last_n = o->repeat_last_n, .seed = o->seed,
    };
    if (o->seed == OPTION_SEED_RANDOM)
        s->seed = fresh_seed();
}

int app_turn(const struct options *o, const struct transcript *t, bool go_on, struct turn *turn, struct error *e)
{
    int rc = transcript_messages(t, &turn->messages, &turn->n_messages, e);

    if (rc < 0)
        return rc;
    if (!go_on)
        mem_free(turn->messages[--turn->n_messages].text);
    turn->stops = mem_alloc(o->stop.n + 1, sizeof *turn->stops);
    for (size_t i = 0; turn->stops && i < o->stop.n && (turn->stops[i] = mem_string(o->stop.items[i])); i++)
        turn->n_stops++;
    if (!turn->stops || turn->n_stops < o->stop.n)
        return error_set(e, ERR_MEMORY, "out of memory for the turn");
    turn->continue_last = go_on;
    turn->max_tokens = o->n_predict;
    turn->ignore_eos = o->ignore_eos;
    app_sampling(o, &turn->sampling);
    return 0;
}

double app_pace(const struct options *o, bool chat)
{
    return chat || o->origin[OPTION_ID_pace].from > ORIGIN_MODEL ? o->pace : 0;
}

/* ---- the engine ---- */

struct progress {
    uint64_t started, drawn;
    bool shown;
};

/* A line on a terminal's stderr once loading takes noticeable time; a signal cancels. */
static int on_progress(void *ctx, uint64_t done, uint64_t total)
{
    static struct progress p;
    uint64_t now = clock_now();

    if (app_signal())
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
        fprintf(stderr, "\rloading %3.0f %% of %.1f GiB ", 100.0 * (double)done / (double)total, (double)total / (1 << 30));
        p.shown = true;
        p.drawn = now;
    }
    return 0;
}

/* Also where no progress is shown. */
static bool on_stop(void *ctx)
{
    return app_signal() != 0;
}

static void on_log(void *ctx, const char *line)
{
    log_write(LOG_LEVEL_INFO, "%s", line);
    fprintf(stderr, "moetop: %s\n", line);
}

/* Asked once: what is wrong with a folder is said in one line, and the work goes on without it. */
static const char *find_cache(const struct options *o)
{
    static char path[PATH_MAX];
    struct error e = {0};

    if (o->cache_dir)
        snprintf(path, sizeof path, "%s", o->cache_dir);
    else
        config_home("CACHE", path, sizeof path);
    if (!*path)
        return NULL;
    if (!o->cache_dir)
        file_make_folders(path, NULL);
    if (cache_check(path, &e) == 0)
        return path;
    on_log(NULL, e.text);
    return NULL;
}

const char *app_cache_dir(const struct options *o)
{
    static const char *found;
    static bool asked;

    if (!asked)
        found = find_cache(o);
    asked = true;
    return found;
}

static int conversion(const struct options *o)
{
    char word[16];

    option_word(&option_table[OPTION_ID_dtype], o->dtype, word, sizeof word);
    return dtype_from_word(word);            /* -1 for "keep" */
}

/* A first answer begins before the weights are packed; whatever measures, or needs another device at once, waits for them. */
static bool answers_at_once(const struct options *o)
{
    return !o->bench && !o->microbench && !o->compare && !o->profile_experts && !o->suggest && !o->batch && !(o->place_script && *o->place_script) &&
        (!o->place || !*o->place || strcmp(o->place, "cpu") == 0);
}

const char *app_chat_template(const struct options *o, char *word, size_t size)
{
    if (!o->chat_template)               /* the first word: the model's own */
        return NULL;
    option_word(&option_table[OPTION_ID_chat_template], o->chat_template, word, size);
    return word;
}

int app_engine_settings(const struct options *o, struct engine_setup *s, struct error *e)
{
    uint64_t available = fit_available();
    int rc;

    *s = (struct engine_setup){0};
    if ((rc = app_model_path(o, s->model_path, sizeof s->model_path, NULL, e)) < 0)
        return rc;
    option_word(&option_table[OPTION_ID_kernels], o->kernels, s->kernels, sizeof s->kernels);
    s->config = (struct engine_config){
        .model_path = s->model_path, .context = o->ctx_size, .n_threads = o->threads, .batch = o->batch_size, .ubatch = o->ubatch_size,
        .defer_experts = o->defer_experts, .kv_k = (enum kv_type)o->cache_type_k, .kv_v = (enum kv_type)o->cache_type_v,
        .convert = conversion(o), .memory = available == UINT64_MAX ? 0 : available, .exact = o->exact, .float_library = o->float_gemm, .tune = (enum device_tune)o->tune,
        .background = answers_at_once(o), .kernels = o->kernels ? s->kernels : NULL, .backends = device_backends,
        .cache_dir = app_cache_dir(o), .chat_template = app_chat_template(o, s->chat_template, sizeof s->chat_template),
        .chat_optional = o->raw || o->bench || o->microbench, .opened = place_opened, .opened_ctx = &s->wish, .stop = on_stop,
    };
    s->device = mem_string(o->device);
    s->chat_template_file = mem_string(o->chat_template_file);
    s->config.device_selector = s->device;
    s->config.chat_template_file = s->chat_template_file;
    if (!s->device != !o->device || !s->chat_template_file != !o->chat_template_file)
        rc = error_set(e, ERR_MEMORY, "out of memory");
    if (rc < 0 || (rc = place_wish_init(&s->wish, o, s->config.cache_dir, e)) < 0)
        engine_setup_release(s);
    return rc;
}

void engine_setup_release(struct engine_setup *s)
{
    place_wish_release(&s->wish);
    mem_free(s->device);
    mem_free(s->chat_template_file);
    s->device = s->chat_template_file = NULL;
}

int app_engine_config(const struct options *o, struct engine_setup *s, bool progress, struct error *e)
{
    int rc = app_engine_settings(o, s, e);

    if (rc < 0)
        return rc;
    if (progress) {
        s->config.progress = on_progress;
        s->config.log = on_log;
    }
    if ((o->device && (rc = devices_check(o->device, e)) < 0) || (rc = fit_require(&s->config, o->force, e)) < 0)
        engine_setup_release(s);
    return rc;
}

int app_engine_open(const struct options *o, struct engine **out, struct error *e)
{
    struct engine_setup s;
    int rc;

    app_signals(NULL);
    if ((rc = app_engine_config(o, &s, true, e)) < 0)
        return rc;
    rc = engine_open(out, &s.config, e);
    if (rc == 0 && !s.config.background)     /* nobody waits for a first token */
        engine_tune(*out);
    engine_setup_release(&s);                /* the engine has copies of what it goes on needing */
    if (rc < 0)
        return rc;
    engine_pace_set(*out, app_pace(o, false));
    remarks_tell(o, engine_info(*out), on_log, NULL);
    app_signals(*out);
    return 0;
}
