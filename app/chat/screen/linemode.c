/* The chat without a screen. One thread: poll on standard input and the conversation's descriptor,
 * readline by callbacks during the user's turn, plain terminal input while an answer streams
 * (commands run at once, a message is queued). Readline is configured for a dumb terminal, so that
 * no escape sequence is ever written: the output can be piped, logged, read aloud, or printed by a
 * teletype. */
#include "app/common/thoughts.h"
#include "app/chat/screen/linemode.h"

#include "app/chat/commands/commands.h"
#include "app/chat/conversation.h"
#include "app/common/paths.h"
#include "app/common/safe_text.h"
#include "app/common/signals.h"
#include "app/mcp/record.h"
#include "engine/base/file.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"
#include "ui/input_history.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <readline/readline.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct linemode {
    struct conversation *c;
    bool tty;       /* input and output are a terminal: readline and a prompt */
    bool reader;    /* --screen-reader */
    bool prompting; /* readline's handler is installed, the prompt is on the screen */
    bool answering; /* the answer's label was printed */
    struct thoughts thoughts;
    enum answer_part part; /* of the newest text */
    bool line_open;        /* the cursor is not at a line's start */
    bool end_of_input;
    bool broken; /* standard output cannot be written */
    /* input could not be stored: continuing would wait for lost input */
    bool no_memory;
    int write_errno;
    bool tty_out;            /* standard output is a terminal: unsafe characters are replaced */
    struct utf8_marks marks; /* of what went to the terminal */
    int interrupts;          /* Ctrl-C on an empty line, in a row */
    struct strbuf sentence;  /* screen reader: text not yet printed */
    struct strbuf block;     /* lines of a message inside """ or before a backslash */
    bool in_block;
    bool submitting;     /* inside chat_submit: the new message was just typed */
    struct strbuf input; /* bytes of a pipe, or typed while there is no prompt; not yet a line */
    int point;           /* the cursor in it, -1: at its end */
    char *preset;        /* /edit: initial text of the next prompt */
};

/* Readline's callbacks carry no argument. */
static struct linemode *self;
static volatile sig_atomic_t interrupted, ended;

/* ---- output ---- */

static void put(struct linemode *m, const char *text, size_t n)
{
    if (!n || m->broken)
        return;
    m->tty_out = isatty(STDOUT_FILENO);
    m->line_open = text[n - 1] != '\n';
    if (!safe_text_put(stdout, m->tty_out, &m->marks, text, n)) {
        m->broken = true;
        m->write_errno = errno;
    }
    if (!m->broken && fflush(stdout) != 0) {
        m->broken = true;
        m->write_errno = errno;
    }
}

static void puts_line(struct linemode *m, const char *text)
{
    put(m, text, strlen(text));
    if (m->line_open)
        put(m, "\n", 1);
}

/* Erases the prompt, and the input after it. */
static void unprompt(struct linemode *m)
{
    if (!m->prompting)
        return;
    m->prompting = false;
    rl_callback_handler_remove();
}

/* Clears the line for other output; prompt() restores partial input. */
static void fresh_line(struct linemode *m)
{
    if (m->prompting && (rl_end > 0 || m->reader)) {
        strbuf_put(&m->input, rl_line_buffer, (size_t)rl_end);
        m->point = rl_point;
        m->line_open = true;
    } else if (m->prompting) {
        putchar('\r'); /* the new line is longer than the prompt */
        fflush(stdout);
    }
    unprompt(m);
    if (m->line_open)
        put(m, "\n", 1);
}

/* ---- answers ---- */

/* Bytes of whole sentences in text: up to the last ., !, ? or : before a blank, or line end. */
static size_t whole_sentences(const char *text, size_t n)
{
    for (size_t i = n; i > 0; i--)
        if (text[i - 1] == '\n' || (i < n && text[i] == ' ' && strchr(".!?", text[i - 1])))
            return i;
    return 0;
}

static void flush_sentence(struct linemode *m, bool all)
{
    size_t n = all ? m->sentence.len : whole_sentences(strbuf_text(&m->sentence), m->sentence.len);

    if (!n)
        return;
    put(m, m->sentence.data, n);
    memmove(m->sentence.data, m->sentence.data + n, m->sentence.len - n + 1);
    m->sentence.len -= n;
    if (!all && m->line_open)
        put(m, "\n", 1); /* one sentence per line works best with screen readers */
    while (m->sentence.len && m->sentence.data[0] == ' ')
        memmove(m->sentence.data, m->sentence.data + 1, m->sentence.len--);
}

/* During an answer a screen reader announces that it continues, not its text. */
static void thought(struct linemode *m, const struct token_event *t)
{
    fresh_line(m);
    if (!m->reader)
        thoughts_put(&m->thoughts, t->text, t->len);
    else if (m->part != PART_REASONING)
        puts_line(m, "The model is thinking.");
    m->part = PART_REASONING;
}

static void token(struct linemode *m, const struct token_event *t)
{
    const char *border = answer_part_border(m->part, t->part);

    if (!t->len)
        return;
    if (t->part == PART_REASONING) {
        thought(m, t);
        return;
    }
    m->part = t->part;
    thoughts_end(&m->thoughts);
    if (!m->answering) {
        m->answering = true;
        fresh_line(m);
        if (m->reader)
            puts_line(m, "Assistant:");
        else if (m->tty)
            put(m, "moetop: ", 8);
    }
    if (!m->reader) {
        put(m, border, strlen(border));
        put(m, t->text, t->len);
        return;
    }
    strbuf_puts(&m->sentence, border);
    strbuf_put(&m->sentence, t->text, t->len);
    flush_sentence(m, false);
}

/* The contents of a status line, in words. */
static void answer_done(struct linemode *m, const struct turn_done_event *d)
{
    const struct transcript *t = conversation_transcript(m->c);
    bool paced = t->n && t->entries[t->n - 1].paced;
    char text[256];
    double rate = d->completion_tokens > 1 ? clock_rate(d->completion_tokens - 1, d->decode_ns) : 0;

    thoughts_end(&m->thoughts);
    m->part = PART_ANSWER;

    flush_sentence(m, true);
    if (m->line_open)
        put(m, "\n", 1);
    m->answering = false;
    if (m->reader) {
        snprintf(text, sizeof text,
                 "End of answer. %d tokens in %.1f seconds%s %.0f tokens per second.%s",
                 d->completion_tokens, clock_seconds(d->total_ns),
                 paced ? " as paced; the computing makes" : ",", rate,
                 d->reason == STOP_TOKEN       ? ""
                 : d->reason == STOP_LENGTH    ? " It was cut at the length limit."
                 : d->reason == STOP_CONTEXT   ? " It was cut because the context is full."
                 : d->reason == STOP_CANCELLED ? " It was stopped."
                                               : "");
        puts_line(m, text);
    } else if (m->tty && d->reason != STOP_TOKEN) {
        snprintf(text, sizeof text, "(%s)", stop_reason_word(d->reason));
        puts_line(m, text);
    }
}

static void say_beside(const struct linemode *m, enum conversation_say kind, const char *text)
{
    char safe[4096];

    utf8_escape(safe, sizeof safe, text, strlen(text), UTF8_KEEP_NEWLINE);
    if (m->reader)
        fprintf(stderr, "%s%s\n", kind == SAY_TROUBLE ? "Trouble: " : "Note: ", safe);
    else
        /* before an answer it would look like one */
        fprintf(stderr, m->tty && kind == SAY_NOTICE ? "(%s)\n" : "moetop: %s\n", safe);
}

static void on_event(void *ctx, const struct event *ev)
{
    struct linemode *m = ctx;

    switch (ev->kind) {
    case EVENT_TOKEN: token(m, &ev->token); break;
    case EVENT_TURN_DONE: answer_done(m, &ev->done_turn); break;
    case EVENT_READY:
        if (m->reader)
            puts_line(m, "The model is ready. Type a message and press Enter.");
        break;
    case EVENT_ERROR: /* of a turn; an error of loading is the mode's own */
        if (conversation_ready(m->c)) {
            fresh_line(m);
            say_beside(m, SAY_TROUBLE, ev->text ? ev->text : "the answer failed");
        }
        break;
    /* a device failed, turns were dropped: printed apart from the answer, which then continues */
    case EVENT_NOTICE:
        if (ev->text && m->tty)
            fresh_line(m);
        if (ev->text)
            say_beside(m, SAY_NOTICE, ev->text);
        break;
    default: break;
    }
}

static void on_say(void *ctx, enum conversation_say kind, const char *text)
{
    struct linemode *m = ctx;

    fresh_line(m);
    if (kind == SAY_OUTPUT)
        puts_line(m, text);
    else
        say_beside(m, kind, text);
}

/* The second engine's answer, below a line with its name. */
static void on_beside(void *ctx, const char *name, const char *text, size_t len)
{
    struct linemode *m = ctx;
    char line[160];

    if (text && len) {
        put(m, text, len);
        return;
    }
    fresh_line(m);
    if (!text)
        return;
    snprintf(line, sizeof line, m->reader ? "The second answer, by %s:" : "2 %s:", name);
    puts_line(m, line);
}

/* The result of a tool is for the model; that it ran is told. */
static void tool_ran(struct linemode *m, const struct transcript_entry *entry)
{
    char line[128], text[160];

    record_line(entry, line, sizeof line);
    snprintf(text, sizeof text, "tool %s", line);
    fresh_line(m);
    say_beside(m, SAY_NOTICE, text);
}

/* A queued message is printed again where its answer begins; one just typed is already visible. */
static void on_added(void *ctx, const struct transcript_entry *entry)
{
    struct linemode *m = ctx;

    if (entry->role == ROLE_TOOL) {
        tool_ran(m, entry);
        return;
    }
    if (entry->role != ROLE_USER || m->submitting || !m->tty)
        return;
    fresh_line(m);
    put(m, m->reader ? "You: " : "> ", m->reader ? 5 : 2);
    puts_line(m, entry->text);
}

static void on_changed(void *ctx)
{
}

static void on_edit(void *ctx, const char *text)
{
    struct linemode *m = ctx;

    mem_free(m->preset);
    m->preset = mem_string(text);
}

static bool on_copy(void *ctx, const char *text, size_t len)
{
    return false; /* the clipboard needs an escape sequence */
}

static void on_set(void *ctx, const struct option *option)
{
}

/* ---- input ---- */

static void submit(struct linemode *m, const char *text)
{
    m->submitting = true;
    if (text[strspn(text, " \t\n")])
        chat_submit(m->c, text);
    m->submitting = false;
}

/* One line of input: part of a block, or a message. */
static void line_in(struct linemode *m, const char *line)
{
    size_t n = strlen(line);
    bool opens = !m->in_block && !strncmp(line, "\"\"\"", 3), closes, goes_on;

    m->interrupts = 0;
    if (opens) {
        line += 3;
        n -= 3;
        m->in_block = true;
    }
    if (m->in_block) {
        closes = n >= 3 && !strcmp(line + n - 3, "\"\"\"");
        strbuf_put(&m->block, line, closes ? n - 3 : n);
        if (!closes) {
            if (!opens || n)
                strbuf_puts(&m->block, "\n");
            return;
        }
    } else {
        goes_on = n && line[n - 1] == '\\';
        strbuf_put(&m->block, line, goes_on ? n - 1 : n);
        if (goes_on) {
            strbuf_puts(&m->block, "\n");
            return;
        }
    }
    m->in_block = false;
    submit(m, strbuf_text(&m->block));
    strbuf_release(&m->block);
}

static void on_line(char *line)
{
    struct linemode *m = self;

    m->prompting = false;
    rl_callback_handler_remove();
    m->line_open = false;
    if (!line) {
        puts_line(m, "");
        m->end_of_input = true;
        return;
    }
    if (!m->in_block)
        input_history_add(line);
    line_in(m, line);
    free(line); /* allocated by readline */
}

/* Restores partial input, preceded by a suggested text. */
static void insert_typed(struct linemode *m)
{
    int before;

    if (m->preset)
        rl_insert_text(m->preset);
    before = rl_point;
    if (m->input.len)
        rl_insert_text(m->input.data);
    if (m->point >= 0 && m->point < (int)m->input.len)
        rl_point = before + m->point;
    mem_free(m->preset);
    m->preset = NULL;
    strbuf_release(&m->input);
    m->point = -1;
}

static void prompt(struct linemode *m)
{
    if (m->prompting || !m->tty || m->end_of_input)
        return;
    m->prompting = true;
    rl_callback_handler_install(m->reader ? m->in_block || m->block.len ? "More: " : "You: "
                                : m->in_block || m->block.len ? ". "
                                                              : "> ",
                                on_line);
    insert_typed(m);
    rl_redisplay();
}

/* Splits bytes of a pipe into lines; a last line without an end counts. */
static void read_pipe(struct linemode *m)
{
    char bytes[4096];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n > 0)
        strbuf_put(&m->input, bytes, (size_t)n);
    else
        m->end_of_input = true;
}

/* The next line of the pipe, if idle: messages are answered one after the other. False: there is
 * none yet. */
static bool feed_pipe(struct linemode *m)
{
    char *end = m->input.len ? memchr(m->input.data, '\n', m->input.len) : NULL;
    size_t n = end ? (size_t)(end - m->input.data) : m->input.len;
    char *line;

    if (!m->input.len || (!end && !m->end_of_input))
        return false;
    if (!(line = mem_string_n(m->input.data, n))) {
        m->no_memory = true;
        return false;
    }
    if (n && line[n - 1] == '\r')
        line[n - 1] = 0;
    memmove(m->input.data, m->input.data + n + (end != NULL), m->input.len - n - (end != NULL));
    m->input.len -= n + (end != NULL);
    line_in(m, line);
    mem_free(line);
    /* a block that was not closed is a message too */
    if (m->end_of_input && !m->input.len && m->block.len) {
        m->in_block = false;
        submit(m, m->block.data);
        strbuf_release(&m->block);
    }
    return true;
}

/* The first n bytes of the input are a line. */
static void typed_line(struct linemode *m, size_t n)
{
    char *line = mem_string_n(m->input.data, n);
    size_t taken = n < m->input.len ? n + 1 : n;

    memmove(m->input.data, m->input.data + taken, m->input.len - taken + 1);
    m->input.len -= taken;
    m->line_open = false; /* the echo of Enter */
    if (line && !m->in_block)
        input_history_add(line);
    if (line)
        line_in(m, line);
    m->no_memory |= !line;
    mem_free(line);
}

/* Lines typed while an answer streams: edited and echoed by the terminal itself. Commands run at
 * once, a message is queued, and an incomplete line at the end of the answer is passed to readline:
 * it is still in the kernel, or was read already, since input pending when readline was removed
 * arrives without a line end. */
static void read_typed(struct linemode *m)
{
    char bytes[4096], *end;
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    m->end_of_input = n <= 0;
    /* Enter, typed while readline still had the terminal */
    for (char *p = bytes; n > 0 && (p = memchr(p, '\r', (size_t)(bytes + n - p)));)
        *p = '\n';
    strbuf_put(&m->input, bytes, n > 0 ? (size_t)n : 0);
    m->point = -1;
    while (m->input.len && (end = memchr(m->input.data, '\n', m->input.len)))
        typed_line(m, (size_t)(end - m->input.data));
    if (m->end_of_input && m->input.len)
        typed_line(m, m->input.len);
}

/* ---- signals ---- */

static void on_signal(int number)
{
    if (number == SIGINT)
        interrupted = 1;
    else
        ended = number;
}

static void take_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal};

    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGHUP, &a, NULL);
    sigaction(SIGQUIT, &a, NULL);
    a.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &a, NULL);
}

/* Ctrl-C: cancels the answer; clears a typed line; twice on an empty line ends the chat. */
static int interrupt(struct linemode *m, struct error *e)
{
    interrupted = 0;
    if (conversation_working(m->c) || (conversation_ready(m->c) && conversation_waiting(m->c))) {
        char *waiting = conversation_unqueue(m->c);

        if (waiting) { /* back into the next prompt */
            mem_free(m->preset);
            m->preset = waiting;
        }
        conversation_stop(m->c);
        return 0;
    }
    if (conversation_edit_end(m->c) || (m->tty && ((m->prompting && rl_end > 0) || m->block.len))) {
        m->interrupts = 0;
    } else if (++m->interrupts >= 2 || !m->tty || !conversation_ready(m->c)) {
        return error_set(e, ERR_CANCELLED, "interrupted");
    }
    if (m->prompting)
        rl_callback_sigcleanup();
    unprompt(m);
    strbuf_release(&m->block);
    m->in_block = false;
    put(m, "\n", 1);
    if (m->interrupts)
        puts_line(m, m->reader ? "Press Control C once more to quit." : "(Ctrl-C once more quits)");
    return 0;
}

/* ---- the loop ---- */

static int kept(const struct linemode *m, struct error *e)
{
    if (!m->no_memory && !m->input.failed && !m->block.failed)
        return 0;
    return error_set(e, ERR_MEMORY,
                     "out of memory for what was typed; the chat is saved up to here");
}

/* A message is being answered, or waits for the model or for tool servers. */
static bool is_busy(const struct linemode *m)
{
    return conversation_working(m->c) || !conversation_ready(m->c) || conversation_waiting(m->c);
}

static int step(struct linemode *m, struct error *e)
{
    bool busy = is_busy(m);
    struct pollfd fds[4] = {{.fd = conversation_fd(m->c), .events = POLLIN},
                            {.fd = -1, .events = POLLIN},
                            {.fd = conversation_tools_fd(m->c), .events = POLLIN},
                            {.fd = conversation_beside_fd(m->c), .events = POLLIN}};
    sigset_t none;

    if (!m->end_of_input && m->input.len < (1 << 20))
        fds[1].fd = STDIN_FILENO;
    if (!busy) {
        if (!m->tty && feed_pipe(m))
            return kept(m, e);
        if (kept(m, e) < 0)
            return ERR_MEMORY;
        if (m->end_of_input && !m->input.len)
            return 0;
        prompt(m);
    }
    /* Signals are blocked except in ppoll, so none is lost between the test and the wait. */
    sigemptyset(&none);
    if (!interrupted && !ended && ppoll(fds, 4, NULL, &none) < 0 && errno != EINTR)
        return error_set(e, ERR_IO, "cannot wait for input: %s", strerror(errno));
    if (ended)
        return error_set(e, ERR_CANCELLED, "ended by a signal; the chat is saved");
    if (interrupted)
        return interrupt(m, e);
    /* What was typed first: the terminal has echoed it, its Enter has begun a line. */
    if (fds[1].revents && m->prompting)
        rl_callback_read_char();
    else if (fds[1].revents && m->tty)
        read_typed(m);
    else if (fds[1].revents)
        read_pipe(m);
    if (fds[0].revents || fds[2].revents || fds[3].revents)
        conversation_pump(m->c);
    return kept(m, e);
}

static void open_readline(void)
{
    char history[PATH_MAX + 16];

    rl_readline_name = "moetop";
    rl_terminal_name = "dumb";
    rl_catch_signals = 0;
    rl_catch_sigwinch = 0;
    rl_instream = stdin;
    rl_outstream = stdout;
    rl_initialize();
    rl_variable_bind("enable-bracketed-paste", "off");
    paths_history(history, sizeof history);
    input_history_open(history);
}

static void announce(struct linemode *m, const struct options *o)
{
    char why[512];

    if (!m->reader)
        return;
    option_origin_text(o, &option_table[OPTION_ID_screen_reader], why, sizeof why);
    put(m, "Screen reader mode, set by ", 27);
    put(m, why, strlen(why));
    puts_line(m, ". Loading the model. Type /help for the commands.");
}

bool linemode_wanted(const struct options *o)
{
    const char *term = getenv("TERM");

    return o->plain || o->screen_reader || !term || !*term || !strcmp(term, "dumb") ||
           !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO);
}

int linemode_run(struct options *o, struct error *e)
{
    struct linemode m = {.tty = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO),
                         .reader = o->screen_reader};
    struct conversation_hooks hooks = {.ctx = &m,
                                       .event = on_event,
                                       .say = on_say,
                                       .beside = on_beside,
                                       .added = on_added,
                                       .changed = on_changed,
                                       .edit = on_edit,
                                       .copy = on_copy,
                                       .set = on_set,
                                       .unkept = !isatty(STDIN_FILENO)};
    struct error closing = {0};
    sigset_t blocked, before;
    int rc, rc_close;

    self = &m;
    take_signals();
    announce(&m, o);
    if (m.tty)
        open_readline();
    /* Before the worker starts, whose threads inherit the mask: these signals are delivered only in
     * this thread's wait. */
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    sigaddset(&blocked, SIGQUIT);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    if ((rc = conversation_open(&m.c, o, &hooks, e)) < 0) {
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        goto out;
    }
    if (m.tty && conversation_greeting(m.c)[0])
        on_say(&m, SAY_NOTICE, conversation_greeting(m.c));
    if (m.tty && conversation_goes_on(m.c))
        conversation_end_say(m.c);
    while (rc == 0 && !m.broken && !conversation_over(m.c) &&
           !(m.end_of_input && !m.input.len && !is_busy(&m)))
        rc = step(&m, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    /* so that the shell's prompt starts on a new line */
    m.line_open = m.line_open || m.prompting;
    fresh_line(&m);
    rc_close = conversation_close(m.c, &closing);
    if (m.broken)
        rc = output_failed(NULL, m.write_errno, e);
    else if (rc >= 0 && rc_close < 0) {
        *e = closing;
        rc = rc_close;
    }
out:
    unprompt(&m);
    input_history_close();
    strbuf_release(&m.sentence);
    strbuf_release(&m.block);
    strbuf_release(&m.input);
    mem_free(m.preset);
    return rc;
}
