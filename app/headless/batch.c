/* The batch: reads lines, answers them, --parallel of them at a time, and writes one line for each
 * in the order of the input. Main thread, synchronous engine. Answers that are done before an
 * earlier one's wait for it, but no more than a few. A line of output is one write, so a kill
 * leaves whole lines and at most one torn one, which --resume cuts off: what is in the file is
 * answered, what is not is not. */
#include "app/headless/batch.h"

#include "app/setup/engine_options.h"
#include "app/setup/parallel.h"
#include "app/setup/run_stats.h"
#include "app/common/signals.h"
#include "app/setup/prompt.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"
#include "engine/model/hparams.h"
#include "engine/model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES ((size_t)64 << 20)

#define AHEAD 4 /* lines begun before the oldest is answered, times --parallel */

struct batch;

/* A line under way: read, being answered, or answered and waiting for its turn to be written. */
struct job {
    struct batch *batch;
    size_t index; /* of the line */
    struct batch_line line;
    json_t *o; /* what will be written */
    struct strbuf text;
    uint64_t *counts, *prompt_counts; /* (layers, experts), with --batch-experts */
    struct session *session;          /* NULL: not being answered (any more) */
    bool stepped;                     /* it was, when the pass began */
    struct turn_done_event done;
    int rc;
    struct error why;
};

struct batch {
    const struct options *o;
    struct engine *engine;
    FILE *in;
    int out; /* file descriptor */
    const char *out_name;
    struct turn defaults;
    char *system;
    int parallel;
    struct session **sessions; /* parallel of them, the engine's own first */
    struct job *jobs;          /* a ring: line i in jobs[i % n_jobs] */
    size_t n_jobs, running;
    bool beginning; /* a turn is being rendered: notices are about the line read last */
    /* lines read; answered and written, of which failed; total 0: unknown */
    size_t read, index, failed, total;
    size_t done_before; /* lines that a resumed file holds */
    uint64_t *digests;  /* (done_before) of the lines they answer; 0: not told */
    struct stats stats; /* over all lines of this run */
    /* progress */
    bool bar, drawn;
    uint64_t started, drawn_at, tokens;
};

/* ---- progress on a terminal ---- */

static void clear_bar(struct batch *b)
{
    if (b->drawn)
        fprintf(stderr, "\r%79s\r", "");
    b->drawn = false;
}

static void draw_bar(struct batch *b, bool now)
{
    uint64_t time = clock_now();
    double seconds = (double)(time - b->started) / 1e9;
    size_t done = b->index - b->done_before;
    char bar[21] = "", left[32] = "", line[128];

    if (!b->bar || (!now && time - b->drawn_at < 200 * CLOCK_MILLI))
        return;
    b->drawn_at = time;
    if (b->total) {
        size_t full = b->index * 20 / b->total;

        for (size_t i = 0; i < 20; i++)
            bar[i] = i < full ? '#' : '.';
        if (done) {
            long wait = (long)(seconds / (double)done * (double)(b->total - b->index) + 0.5);

            snprintf(left, sizeof left, ", %ld:%02ld left", wait / 60, wait % 60);
        }
        snprintf(line, sizeof line, "batch %zu of %zu [%s]", b->index, b->total, bar);
    } else
        snprintf(line, sizeof line, "batch %zu", b->index);
    fprintf(stderr, "\r%s", line);
    if (b->failed)
        fprintf(stderr, " %zu failed,", b->failed);
    fprintf(stderr, " %.1f tokens/s%s  ", seconds > 0 ? (double)b->tokens / seconds : 0.0, left);
    b->drawn = true;
}

static void print_notice(struct batch *b, const char *text)
{
    char safe[600];

    clear_bar(b);
    utf8_escape(safe, sizeof safe, text, strlen(text), 0);
    if (b->parallel == 1 || b->beginning)
        fprintf(stderr, "moetop: line %zu: %s\n", b->parallel == 1 ? b->index + 1 : b->read, safe);
    else
        fprintf(stderr, "moetop: %s\n", safe);
}

/* ---- one answer ---- */

static int on_notice(void *ctx, struct event *ev)
{
    if (ev->kind == EVENT_NOTICE && ev->text) {
        print_notice(ctx, ev->text);
        mem_free(ev->text); /* taken: it is told once */
        ev->text = NULL;
    }
    return signals_last() != 0;
}

static int on_event(void *ctx, struct event *ev)
{
    struct job *j = ctx;

    if (ev->kind == EVENT_TOKEN) {
        strbuf_put(&j->text, ev->token.text, ev->token.len);
        j->batch->tokens += ev->token.id >= 0;
        draw_bar(j->batch, false);
    } else if (ev->kind == EVENT_TURN_DONE) {
        j->done = ev->done_turn;
        j->session = NULL;
    } else if (ev->kind == EVENT_ERROR) {
        j->rc = error_set(&j->why, ev->failure.code, "%s", ev->text ? ev->text : "out of memory");
        j->session = NULL;
    }
    return signals_last() != 0 || j->text.failed;
}

static void on_routing(void *ctx, const struct routing *r)
{
    struct batch *b = ctx;
    int experts = engine_info(b->engine)->model->hp.n_experts;
    struct job *j = b->jobs;

    while (j < b->jobs + b->n_jobs && j->session != r->session)
        j++;
    for (int layer = 0; layer < r->n_layers && j < b->jobs + b->n_jobs; layer++)
        for (int i = 0; i < r->rows * r->used; i++) {
            int x = r->experts[(size_t)layer * r->layer_stride + (size_t)i];

            if (x < 0 || x >= experts)
                continue;
            j->counts[layer * experts + x]++;
            j->prompt_counts[layer * experts + x] += r->prefill;
        }
}

static json_t *rate(double n, uint64_t ns)
{
    return n > 0 && ns ? json_real(n * 1e9 / (double)ns) : json_null();
}

static json_t *milliseconds(uint64_t ns)
{
    return json_real((double)ns / 1e6);
}

static json_t *count_table(const struct batch *b, const uint64_t *counts)
{
    const struct hparams *hp = &engine_info(b->engine)->model->hp;
    json_t *table = json_array();

    for (int l = 0; l < hp->n_layers; l++) {
        json_t *row = json_array();

        for (int x = 0; x < hp->n_experts; x++)
            json_array_append_new(row, json_integer((json_int_t)counts[l * hp->n_experts + x]));
        json_array_append_new(table, row);
    }
    return table;
}

static void put_answer(struct job *j)
{
    json_t *timings = json_object(),
           *text = json_stringn(j->text.data ? j->text.data : "", j->text.len);
    const struct turn_done_event *d = &j->done;
    int computed = d->prompt_tokens - d->cached_tokens;

    json_object_set_new(j->o, "text", text ? text : json_string(""));
    json_object_set_new(j->o, "stop_reason", json_string(stop_reason_word(d->reason)));
    json_object_set_new(j->o, "prompt_tokens", json_integer(d->prompt_tokens));
    json_object_set_new(j->o, "cached_tokens", json_integer(d->cached_tokens));
    json_object_set_new(j->o, "completion_tokens", json_integer(d->completion_tokens));
    json_object_set_new(timings, "ttft_ms",
                        d->completion_tokens ? milliseconds(d->ttft_ns) : json_null());
    json_object_set_new(timings, "prefill_ms", milliseconds(d->prefill_ns));
    json_object_set_new(timings, "decode_ms", milliseconds(d->decode_ns));
    json_object_set_new(timings, "prefill_tok_s", rate(computed, d->prefill_ns));
    json_object_set_new(timings, "decode_tok_s", rate(d->completion_tokens - 1, d->decode_ns));
    json_object_set_new(j->o, "timings", timings);
    if (j->counts) {
        json_object_set_new(j->o, "experts", count_table(j->batch, j->counts));
        json_object_set_new(j->o, "experts_prompt", count_table(j->batch, j->prompt_counts));
    }
}

/* The model is gone or a signal came: no further line can be answered, and this one is not. */
static bool is_fatal(int rc)
{
    return rc == ERR_CANCELLED || rc == ERR_IO || rc == ERR_MODEL;
}

/* ---- output ---- */

/* Of a line of the input: enough to notice that it is another one than was answered. Never 0. */
static uint64_t digest(const char *text, size_t n)
{
    uint64_t h = hash_bytes(HASH_START, text, n);

    return h ? h : 1;
}

/* What a terminal would obey (C1, bidirectional controls; jansson escapes only C0) is written as
 * \uXXXX: the same text to a reader of JSON. */
static void escape_unsafe(struct strbuf *out, const char *json, size_t n)
{
    size_t from = 0, len;
    uint32_t cp;

    for (size_t i = 0; i < n; i += len) {
        len = utf8_decode(json + i, n - i, &cp);
        if (!utf8_unsafe(cp))
            continue;
        strbuf_put(out, json + from, i - from);
        if (cp > 0xffff)
            strbuf_printf(out, "\\u%04x", (unsigned)(0xd7c0 + (cp >> 10)));
        strbuf_printf(out, "\\u%04x", (unsigned)(cp > 0xffff ? 0xdc00 | (cp & 0x3ff) : cp));
        from = i + len;
    }
    strbuf_put(out, json + from, n - from);
    strbuf_putc(out, '\n');
}

static int write_line(struct batch *b, json_t *o, struct error *e)
{
    char *json = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9));
    struct strbuf line = {0};
    size_t at = 0;
    int rc = 0;

    if (json)
        escape_unsafe(&line, json, strlen(json));
    if (!json || line.failed)
        rc = error_set(e, ERR_MEMORY, "out of memory for the answer");
    while (rc == 0 && at < line.len) {
        ssize_t put = write(b->out, line.data + at, line.len - at);

        if (put > 0)
            at += (size_t)put;
        else if (put < 0 && errno != EINTR)
            rc = b->out == STDOUT_FILENO
                     ? output_failed(NULL, errno, e)
                     : error_set(e, ERR_IO, "cannot write to %s: %s", b->out_name, strerror(errno));
    }
    free(json); /* jansson's own */
    strbuf_release(&line);
    return rc;
}

/* A turn is over: what became of it. */
static void end_answer(struct job *j)
{
    struct batch *b = j->batch;

    b->running--;
    stats_add_turn(&b->stats, &j->done);
    if (j->rc == 0 && j->text.failed)
        j->rc = error_set(&j->why, ERR_MEMORY, "out of memory for the answer");
    if (j->rc == 0 && (signals_last() || j->done.reason == STOP_CANCELLED))
        j->rc = error_set(&j->why, ERR_CANCELLED, "interrupted");
    if (j->rc == 0)
        put_answer(j);
}

/* Begins the answer of a line that was read. */
static void begin_answer(struct job *j, struct session *s)
{
    struct batch *b = j->batch;
    struct error shown_by_event;

    if (j->counts) {
        const struct hparams *hp = &engine_info(b->engine)->model->hp;
        size_t bytes = (size_t)hp->n_layers * (size_t)hp->n_experts * sizeof *j->counts;

        memset(j->counts, 0, bytes);
        memset(j->prompt_counts, 0, bytes);
        engine_session_forget(s); /* so that the prompt is counted whole */
    }
    if (!b->running && (b->o->stats || b->o->stats_json)) /* it costs a short line's time */
        stats_begin_turn(&b->stats);
    j->session = s;
    b->running++;
    b->beginning = true;
    engine_session_turn(s, &j->line.turn, on_event, j, &shown_by_event);
    b->beginning = false;
    if (!j->session) /* it was over at once */
        end_answer(j);
}

/* A line becomes a job; one that cannot be asked is over at once. */
static void begin_job(struct batch *b, struct job *j, const char *text, size_t n, bool too_long,
                      struct session *s)
{
    json_t *id;
    char input[24];

    j->batch = b;
    j->index = b->read - 1;
    j->o = json_object();
    j->rc = 0;
    j->done = (struct turn_done_event){0};
    j->line = (struct batch_line){0};
    strbuf_clear(&j->text);
    if (too_long)
        j->rc = error_set(&j->why, ERR_INPUT, "the line is longer than %zu MiB",
                          LINE_MAX_BYTES >> 20);
    else
        j->rc = batch_line_read(&j->line, text, n, &b->defaults, b->system, &j->why);
    id = j->line.id ? json_loads(j->line.id, JSON_DECODE_ANY, NULL) : NULL;
    json_object_set_new(j->o, "index", json_integer((json_int_t)j->index));
    json_object_set_new(j->o, "id", id ? id : json_null());
    snprintf(input, sizeof input, "%016llx", (unsigned long long)digest(text, n));
    json_object_set_new(j->o, "input", json_string(input));
    if (j->rc == 0)
        begin_answer(j, s);
}

/* The oldest line is answered: writes it. */
static int finish_job(struct batch *b, struct job *j, struct error *e)
{
    json_t *failure;
    int rc = j->rc;

    if (is_fatal(rc)) {
        *e = j->why;
        return rc;
    }
    if (rc < 0) {
        b->failed++;
        failure = json_object();
        json_object_set_new(failure, "code", json_string(error_word(rc)));
        json_object_set_new(failure, "message", json_string(j->why.text));
        json_object_set_new(j->o, "error", failure);
    }
    if ((rc = write_line(b, j->o, e)) == 0)
        b->index++;
    return rc;
}

static void job_release(struct job *j)
{
    json_decref(j->o);
    j->o = NULL;
    batch_line_release(&j->line);
}

/* ---- input ---- */

struct reader {
    char *line;
    size_t size, n;
    bool too_long, first;
    char block[65536]; /* read, not yet looked at: at .. have - 1 */
    size_t at, have;
    int failed; /* errno */
};

/* EOF: the end, an error, or a signal. */
static int next_char(struct batch *b, struct reader *r)
{
    ssize_t n = 0;

    if (r->at < r->have)
        return (unsigned char)r->block[r->at++];
    while ((n = read(fileno(b->in), r->block, sizeof r->block)) < 0 && errno == EINTR &&
           !signals_last())
        ;
    if (n < 0 && errno != EINTR)
        r->failed = errno;
    r->at = 0;
    r->have = n > 0 ? (size_t)n : 0;
    return n > 0 ? (unsigned char)r->block[r->at++] : EOF;
}

/* Whether a line can be read without waiting for whoever writes it, who may wait for an answer. */
static bool line_ready(const struct batch *b, const struct reader *r)
{
    struct pollfd p = {.fd = fileno(b->in), .events = POLLIN};

    return memchr(r->block + r->at, '\n', r->have - r->at) || poll(&p, 1, 0) > 0;
}

/* Next line without its end; what is beyond the limit is read and dropped. 1: got one, 0: the end.
 */
static int next_line(struct batch *b, struct reader *r, struct error *e)
{
    int c = 0;

    r->n = 0;
    r->too_long = false;
    while ((c = next_char(b, r)) != EOF && c != '\n') {
        if (r->n + 1 >= r->size && !r->too_long) {
            size_t size = r->size ? r->size * 2 : 4096;
            char *line = size <= LINE_MAX_BYTES * 2 ? mem_resize(r->line, size, 1) : NULL;

            if (line) {
                r->line = line;
                r->size = size;
            } else
                r->too_long = true;
        }
        if (!r->too_long)
            r->line[r->n++] = (char)c;
    }
    if (signals_last())
        return error_set(e, ERR_CANCELLED, "interrupted");
    if (r->failed)
        return error_set(e, ERR_IO, "cannot read %s: %s", b->o->batch, strerror(r->failed));
    if (c == EOF && !r->n && !r->too_long)
        return 0;
    r->too_long = r->too_long || r->n > LINE_MAX_BYTES;
    if (r->n && r->line[r->n - 1] == '\r')
        r->n--;
    /* byte order mark */
    if (r->first && r->n >= 3 && memcmp(r->line, "\xef\xbb\xbf", 3) == 0) {
        memmove(r->line, r->line + 3, r->n -= 3);
        if (c == EOF && !r->n)
            return 0; /* nothing but the mark: an empty file */
    }
    r->first = false;
    return 1;
}

/* Lines of a regular file, so that the bar has an end; 0 otherwise. */
static size_t count_lines(FILE *f)
{
    char block[65536];
    size_t lines = 0, n;
    struct stat st;
    bool open = false;

    if (fstat(fileno(f), &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        for (size_t i = 0; i < n; i++) {
            open = block[i] != '\n';
            lines += !open;
        }
    rewind(f);
    lseek(fileno(f), 0, SEEK_SET); /* lines are read from there */
    return lines + open;
}

static int open_input(struct batch *b, struct error *e)
{
    struct stat st;

    b->in = strcmp(b->o->batch, "-") == 0 ? stdin : fopen(b->o->batch, "re");
    if (!b->in)
        return error_set(e, ERR_IO, "%s: %s", b->o->batch, strerror(errno));
    if (fstat(fileno(b->in), &st) == 0 && S_ISDIR(st.st_mode))
        return error_set(e, ERR_IO, "%s is a folder", b->o->batch);
    if (b->in != stdin)
        b->total = count_lines(b->in);
    return 0;
}

static int keep_digest(struct batch *b, size_t line, const json_t *answer, struct error *e)
{
    const char *input = json_string_value(json_object_get(answer, "input"));

    if ((line & (line - 1)) == 0) { /* room for the next power of two */
        uint64_t *more = mem_resize(b->digests, line ? 2 * line : 1, sizeof *more);

        if (!more)
            return error_set(e, ERR_MEMORY, "out of memory for the answers of %s", b->out_name);
        b->digests = more;
    }
    b->digests[line] = input ? strtoull(input, NULL, 16) : 0;
    return 0;
}

/* The line that an earlier run answered must be the one that stands there now: answers to two
 * inputs in one file would fit neither. */
static int check_same_line(struct batch *b, const char *text, size_t n, struct error *e)
{
    uint64_t was = b->digests[b->read];

    if (!was || was == digest(text, n))
        return 0;
    return error_set(e, ERR_USAGE,
                     "line %zu of the input is not the one that %s answers there; give --resume "
                     "the input of that run, or leave it "
                     "out to begin anew",
                     b->read + 1, b->out_name);
}

/* Whole lines that an earlier run left: counted, checked, and the torn one behind them cut off. */
static int take_up(struct batch *b, struct error *e)
{
    FILE *f = fdopen(dup(b->out), "r");
    char *line = NULL;
    size_t size = 0, lines = 0;
    off_t end = 0;
    ssize_t n;
    int rc = 0;

    if (!f)
        return error_set(e, ERR_IO, "%s: %s", b->out_name, strerror(errno));
    while (rc == 0 && (n = getline(&line, &size, f)) > 0 && line[n - 1] == '\n') {
        json_t *o = json_read_own(line, (size_t)n, "", NULL), *index = json_object_get(o, "index");

        if (!json_is_integer(index) || json_integer_value(index) != (json_int_t)lines ||
            (!json_object_get(o, "text") && !json_object_get(o, "error")))
            rc = error_set(e, ERR_USAGE,
                           "%s: line %zu is not the answer to line %zu of a batch; --resume needs "
                           "the file of the run that was cut short",
                           b->out_name, lines + 1, lines + 1);
        if (rc == 0)
            rc = keep_digest(b, lines, o, e);
        b->failed += json_object_get(o, "error") != NULL;
        json_decref(o);
        lines++;
        end += n;
    }
    if (rc == 0 && ferror(f))
        rc = error_set(e, ERR_IO, "%s: %s", b->out_name, strerror(errno));
    if (rc == 0 && (ftruncate(b->out, end) < 0 || lseek(b->out, end, SEEK_SET) < 0))
        rc = error_set(e, ERR_IO, "%s: %s", b->out_name, strerror(errno));
    free(line); /* getline's own */
    fclose(f);
    b->done_before = lines;
    return rc;
}

static int open_output(struct batch *b, struct error *e)
{
    struct stat in, out;

    if (!b->o->output) {
        b->out = STDOUT_FILENO;
        b->out_name = "standard output";
        return 0;
    }
    b->out_name = b->o->output;
    if (stat(b->out_name, &out) == 0 && !S_ISREG(out.st_mode))
        b->out = file_open_write(b->out_name, 0, 0, e);
    /* --resume reads it */
    else if ((b->out = open(b->out_name, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
        error_set(e, ERR_IO, "%s: %s", b->out_name, strerror(errno));
    if (b->out < 0)
        return ERR_IO;
    if (fstat(b->out, &out) < 0)
        return error_set(e, ERR_IO, "%s: %s", b->out_name, strerror(errno));
    if (fstat(fileno(b->in), &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
        return error_set(e, ERR_USAGE, "--batch and --output name the same file, %s", b->out_name);
    if (!S_ISREG(out.st_mode))
        return b->o->resume ? error_set(e, ERR_USAGE, "--resume needs a regular file; %s is none",
                                        b->out_name)
                            : 0;
    if (flock(b->out, LOCK_EX | LOCK_NB) < 0)
        return error_set(e, ERR_IO, "another batch is writing to %s", b->out_name);
    if (b->o->resume)
        return take_up(b, e);
    return ftruncate(b->out, 0) == 0 ? 0
                                     : error_set(e, ERR_IO, "%s: %s", b->out_name, strerror(errno));
}

/* ---- the mode ---- */

static int count_experts(struct batch *b, struct error *e)
{
    const struct hparams *hp = &engine_info(b->engine)->model->hp;
    size_t n = (size_t)hp->n_layers * (size_t)hp->n_experts;

    for (size_t i = 0; i < b->n_jobs; i++) {
        b->jobs[i].counts = mem_alloc(n, sizeof *b->jobs[i].counts);
        b->jobs[i].prompt_counts = mem_alloc(n, sizeof *b->jobs[i].prompt_counts);
        if (!b->jobs[i].counts || !b->jobs[i].prompt_counts)
            return error_set(e, ERR_MEMORY, "out of memory for the counts of experts");
    }
    engine_observe(b->engine, on_routing, b);
    return 0;
}

static int start_engine(struct batch *b, struct error *e)
{
    int rc = engine_setup_open(b->o, &b->engine, e);

    b->n_jobs = b->parallel > 1 ? AHEAD * (size_t)b->parallel : 1;
    b->sessions = mem_alloc((size_t)b->parallel, sizeof *b->sessions);
    b->jobs = mem_alloc(b->n_jobs, sizeof *b->jobs);
    if (rc == 0 && (!b->sessions || !b->jobs))
        rc = error_set(e, ERR_MEMORY, "out of memory for %d lines at a time", b->parallel);
    if (rc < 0)
        return rc;
    b->sessions[0] = engine_session(b->engine);
    for (int i = 1; i < b->parallel; i++)
        if ((rc = engine_session_open(b->engine, &b->sessions[i], e)) < 0) {
            error_prefix(e, "--parallel %d: only %d fit", b->parallel, i);
            return rc;
        }
    if (b->o->batch_experts)
        rc = count_experts(b, e);
    engine_events_set(b->engine, on_notice, b);
    b->started = clock_now();
    return rc;
}

static struct session *idle_session(const struct batch *b)
{
    for (int i = 0; i < b->parallel; i++) {
        bool idle = true;

        for (size_t k = 0; k < b->n_jobs && idle; k++)
            idle = b->jobs[k].session != b->sessions[i];
        if (idle)
            return b->sessions[i];
    }
    return NULL;
}

/* May another line be begun? Before the engine is there only to find out that there is work. */
static bool has_room(const struct batch *b)
{
    return !b->engine || (b->read - b->index < b->n_jobs && idle_session(b));
}

/* Reads a line and begins to answer it. 1: it did; 0: the end of the input. */
static int take_line(struct batch *b, struct reader *r, struct error *e)
{
    int rc = next_line(b, r, e);

    if (rc <= 0)
        return rc;
    if (b->read < b->done_before) { /* answered already */
        if ((rc = check_same_line(b, r->line ? r->line : "", r->n, e)) < 0)
            return rc;
        b->read++;
        b->index++;
        return 1;
    }
    /* --seed -1: a new one for every line */
    sampling_from_options(b->o, &b->defaults.sampling);
    if (!b->engine && (rc = start_engine(b, e)) < 0)
        return rc;
    draw_bar(b, false);
    b->read++;
    begin_job(b, &b->jobs[(b->read - 1) % b->n_jobs], r->line ? r->line : "", r->n, r->too_long,
              idle_session(b));
    return 1;
}

/* Writes what is answered, in the order of the input. */
static int write_answers(struct batch *b, struct error *e)
{
    int rc = 0;

    while (rc == 0 && b->index < b->read) {
        struct job *j = &b->jobs[b->index % b->n_jobs];

        if (j->session)
            break;
        rc = finish_job(b, j, e);
        job_release(j);
    }
    return rc;
}

/* One pass of all that are being answered; those that are over then are taken note of. */
static void step(struct batch *b)
{
    for (size_t i = b->index; i < b->read; i++)
        b->jobs[i % b->n_jobs].stepped = b->jobs[i % b->n_jobs].session != NULL;
    engine_step(b->engine);
    for (size_t i = b->index; i < b->read; i++) {
        struct job *j = &b->jobs[i % b->n_jobs];

        if (j->stepped && !j->session)
            end_answer(j);
    }
}

static int answer_lines(struct batch *b, struct reader *r, struct error *e)
{
    bool ended = false;
    int rc = 0;

    while (rc == 0 && !(ended && b->index == b->read)) {
        bool waits = !ended && has_room(b);

        if (waits && (!b->running || line_ready(b, r))) {
            rc = take_line(b, r, e);
            ended = rc == 0;
            rc = rc < 0 ? rc : 0;
        } else if (b->running) {
            step(b);
        }
        if (rc == 0)
            rc = write_answers(b, e);
    }
    return rc;
}

static int run_lines(struct batch *b, struct error *e)
{
    struct reader *r = mem_alloc(1, sizeof *r);
    int rc;

    if (!r)
        return error_set(e, ERR_MEMORY, "out of memory for the input");
    r->first = true;
    rc = answer_lines(b, r, e);
    clear_bar(b);
    mem_free(r->line);
    mem_free(r);
    if (rc == ERR_CANCELLED && b->engine)
        error_set(e, rc, "interrupted after %zu lines%s", b->index,
                  b->o->output ? "; the same command with --resume goes on there" : "");
    else if (rc < 0 && b->engine && is_fatal(rc))
        error_prefix(e, "line %zu", b->index + 1);
    if (rc == 0 && b->read < b->done_before)
        rc = error_set(
            e, ERR_USAGE,
            "%s holds %zu answers, but the input has only %zu lines; is it the input of that run?",
            b->out_name, b->done_before, b->read);
    return rc;
}

static int check_options(const struct options *o, struct error *e)
{
    if (o->prompt || o->file)
        return error_set(e, ERR_USAGE, "--batch brings its own prompts; %s has no place beside it",
                         o->prompt ? "-p" : "-f");
    if (o->parallel.n && parallel_count(o) > 1)
        return error_set(e, ERR_USAGE, "--batch takes one number for --parallel");
    if (o->resume && !o->output)
        return error_set(e, ERR_USAGE, "--resume goes on in a file: name it with --output");
    return 0;
}

/* Of what was answered, also where the run was interrupted; e keeps what it says then. */
static int tell_stats(struct batch *b, int rc, struct error *e)
{
    struct error own = {0};
    int told;

    stats_take(&b->stats, b->engine ? engine_info(b->engine) : NULL,
               b->engine ? engine_telemetry(b->engine) : NULL);
    if (b->engine) {
        signals_catch(NULL);
        engine_close(b->engine);
        b->engine = NULL;
    }
    if (b->o->stats || b->o->stats_json)
        /* the buffer for it would count as memory that the model needs */
        stats_measure(&b->stats);
    told = stats_finish(&b->stats, b->o, stderr, &own);
    if (told < 0 && rc >= 0) {
        *e = own;
        return told;
    }
    return rc;
}

int batch_run(struct options *o, struct error *e)
{
    struct batch b = {
        .o = o, .out = -1, .bar = isatty(STDERR_FILENO), .parallel = parallel_most(o)};
    int rc;

    signals_catch(NULL);
    b.started = clock_now();
    b.defaults = (struct turn){.raw = o->raw,
                               .max_tokens = o->n_predict,
                               .ignore_eos = o->ignore_eos,
                               .stops = o->stop.items,
                               .n_stops = o->stop.n};
    if ((rc = check_options(o, e)) < 0 || (rc = stats_open(&b.stats, o, e)) < 0 ||
        (rc = prompt_system(o, &b.system, e)) < 0 || (rc = open_input(&b, e)) < 0 ||
        (rc = open_output(&b, e)) < 0)
        goto out;
    rc = run_lines(&b, e);
    if (b.out != STDOUT_FILENO && fsync(b.out) < 0 && errno != EINVAL && errno != EROFS && rc == 0)
        rc = error_set(e, ERR_IO, "%s: %s", b.out_name, strerror(errno));
    if (rc == 0 && b.failed)
        rc = error_set(e, ERR_INPUT, "%zu of %zu lines failed; their \"error\" says why", b.failed,
                       b.index);
    rc = tell_stats(&b, rc, e);
out:
    if (b.engine) {
        signals_catch(NULL);
        engine_close(b.engine);
    }
    if (b.in && b.in != stdin)
        fclose(b.in);
    if (b.out >= 0 && b.out != STDOUT_FILENO)
        close(b.out);
    stats_release(&b.stats);
    mem_free(b.system);
    mem_free(b.digests);
    for (size_t i = 0; i < b.n_jobs && b.jobs; i++) {
        job_release(&b.jobs[i]);
        strbuf_release(&b.jobs[i].text);
        mem_free(b.jobs[i].counts);
        mem_free(b.jobs[i].prompt_counts);
    }
    mem_free(b.jobs);
    mem_free(b.sessions);
    return rc;
}
