/* See input_line.h. Readline's callback interface reads from our queue: it never sees the terminal,
 * so it cannot write to it, block on it, or change its modes. */
#include "ui/input_line.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "ui/input_history.h"

#include <assert.h>
#include <stdio.h>
#include <readline/history.h>
#include <readline/readline.h>
#include <string.h>

static struct {
    struct input_options options;
    FILE *null_in, *null_out;
    unsigned char queue[512];
    int head, tail;
    char *line; /* accepted, mem_* */
    bool accepted, editor, installed;
    char *matches; /* mem_* */
} in;

static int queue_getc(FILE *f)
{
    (void)f;
    return in.head < in.tail ? in.queue[in.head++] : EOF;
}

static int queue_available(void)
{
    return in.head < in.tail;
}

static void nothing(void)
{
}

static void no_prep(int meta)
{
    (void)meta;
}

/* Readline 8.2 lets an edited entry and the line it saved share one undo list, and frees the latter
 * before the next line: without this the entry's pointer would dangle. Edits of earlier lines are
 * then final, as they look. */
static void forget_undo(void)
{
    HIST_ENTRY **all = history_list();
    int i;

    rl_undo_list = NULL;
    for (i = 0; all && all[i]; i++)
        all[i]->data = NULL;
}

static void on_line(char *line)
{
    mem_free(in.line);
    in.line = mem_string(line ? line : "");
    in.accepted = line != NULL;
    forget_undo();
    /* while readline holds no line: between lines it keeps undo lists in the entries, which an
     * addition would corrupt */
    if (line)
        input_history_add(line);
    mem_free(line);
}

static int key_newline(int count, int key)
{
    (void)count;
    (void)key;
    rl_insert_text("\n");
    return 0;
}

static int key_editor(int count, int key)
{
    (void)count;
    (void)key;
    in.editor = true;
    return 0;
}

static char **complete(const char *text, int start, int end)
{
    char **found = in.options.complete
                       ? in.options.complete(in.options.ctx, rl_line_buffer, start, end)
                       : NULL,
         **out;
    size_t n = 0, i, common;

    (void)text;
    /* never file names where they make no sense */
    rl_attempted_completion_over = 1;
    if (!found)
        return NULL;
    while (found[n])
        n++;
    /* readline frees these: mem_* is the C library's heap */
    out = n ? mem_alloc(n + 2, sizeof *out) : NULL;
    if (out) {
        common = strlen(found[0]);
        for (i = 1; i < n; i++) {
            size_t k = 0;

            while (k < common && found[i][k] == found[0][k])
                k++;
            common = k;
        }
        out[0] = mem_string_n(found[0], common);
        for (i = 0; n > 1 && i < n; i++)
            out[i + 1] = mem_string(found[i]);
    }
    for (i = 0; i < n; i++)
        mem_free(found[i]);
    mem_free(found);
    return out;
}

/* Several matches: formatted as rows of words to show above the line. */
static void show_matches(char **matches, int n, int longest)
{
    int per_row = longest > 0 ? 60 / (longest + 2) : 1, i;
    size_t room = (size_t)n * (size_t)(longest + 4) + 16, at = 0;

    mem_free(in.matches);
    in.matches = mem_alloc(room, 1);
    per_row = per_row < 1 ? 1 : per_row;
    for (i = 1; in.matches && i <= n; i++)
        at += (size_t)snprintf(in.matches + at, room - at, "%-*s%s", longest, matches[i],
                               i == n        ? ""
                               : i % per_row ? "  "
                                             : "\n");
}

static void install(void)
{
    rl_callback_handler_install("", on_line);
    in.installed = true;
}

int input_open(const struct input_options *o, struct error *e)
{
    int c;

    assert(!in.installed);
    memset(&in, 0, sizeof in);
    in.options = *o;
    in.null_in = fopen("/dev/null", "r");
    in.null_out = fopen("/dev/null", "w");
    if (!in.null_in || !in.null_out) {
        input_close();
        return error_set(e, ERR_IO, "/dev/null cannot be opened");
    }
    rl_readline_name = "moetop";
    rl_instream = in.null_in;
    rl_outstream = in.null_out;
    rl_catch_signals = 0;
    rl_catch_sigwinch = 0;
    rl_change_environment = 0;
    rl_getc_function = queue_getc;
    rl_input_available_hook = queue_available;
    rl_redisplay_function = nothing;
    rl_prep_term_function = no_prep;
    rl_deprep_term_function = nothing;
    rl_attempted_completion_function = complete;
    rl_completion_display_matches_hook = show_matches;
    rl_completer_word_break_characters = " \n";
    rl_completion_append_character = ' ';
    rl_initialize();
    rl_set_screen_size(100, 10000); /* prevents wrapping: we draw */
    rl_variable_bind("enable-bracketed-paste", "off");
    rl_variable_bind("horizontal-scroll-mode", "off");
    rl_variable_bind("bell-style", "none");
    rl_variable_bind("show-all-if-ambiguous", "on");
    rl_variable_bind("completion-query-items", "0");
    rl_variable_bind("page-completions", "off");
    rl_add_defun("moetop-newline", key_newline, -1);
    rl_add_defun("moetop-editor", key_editor, -1);
    rl_bind_key('\n', key_newline);
    rl_bind_keyseq("\\e\\C-m", key_newline);
    rl_bind_keyseq("\\e\\C-j", key_newline);
    rl_bind_keyseq("\\C-x\\C-e", key_editor);
    /* Alt-digits toggle panels here; besides, numeric arguments can crash readline 8.2's callback
     * interface. */
    for (c = '0'; c <= '9'; c++)
        rl_bind_key_in_map(c, NULL, emacs_meta_keymap);
    rl_bind_key_in_map('-', NULL, emacs_meta_keymap);
    input_history_open(o->history_file);
    install();
    return 0;
}

void input_close(void)
{
    if (in.installed)
        rl_callback_handler_remove();
    input_history_close();
    if (in.null_in)
        fclose(in.null_in);
    if (in.null_out)
        fclose(in.null_out);
    mem_free(in.line);
    mem_free(in.matches);
    rl_instream = rl_outstream = NULL;
    memset(&in, 0, sizeof in);
}

static enum input_result result(void)
{
    if (in.editor) {
        in.editor = false;
        return INPUT_EDITOR;
    }
    return in.accepted ? INPUT_LINE : INPUT_NOTHING;
}

static void feed(const char *bytes, int n)
{
    in.head = in.tail = 0;
    if (n > (int)sizeof in.queue)
        n = (int)sizeof in.queue;
    memcpy(in.queue, bytes, (size_t)n);
    in.tail = n;
    while (in.head < in.tail && !in.accepted)
        rl_callback_read_char();
    /* after some combinations of search and undo */
    if (rl_point > rl_end)
        rl_point = rl_end;
}

/* Whether a search handles the key: characters, and the controls that extend, repeat, shorten or
 * end it. */
static bool search_key(const char *bytes, int n)
{
    unsigned char c = (unsigned char)bytes[0];

    if (n > 1)
        return c >= 0x80;
    return c >= 0x20 || strchr("\r\n\033\b\a\022\023\027\031", c);
}

/* Ends readline's current operation: it keeps pointers into the line meanwhile. */
static void settle(void)
{
    if (RL_ISSTATE(RL_STATE_ISEARCH))
        feed("\n", 1); /* accepts the match */
    if (input_busy())
        /* the user's isearch-terminators lack Ctrl-J, or another state */
        feed("\a", 1);
}

/* Another key that ends a search is pushed back inside readline 8.2, which handles it in a nested
 * call and, if it is a prefix (Ctrl-X, Esc), corrupts its own state. So the search is ended first,
 * and the key is fed normally. */
static void search_end(const char *bytes, int n)
{
    if (!RL_ISSTATE(RL_STATE_ISEARCH))
        return;
    if (!search_key(bytes, n)) {
        settle();
    } else if (n == 1 && (bytes[0] == '\022' || bytes[0] == '\023') &&
               (strstr(rl_display_prompt, "reverse") != NULL) != (bytes[0] == '\022')) {
        /* After a failed search readline may be positioned behind the end of a shorter line. Starts
         * a new search for the same text. */
        settle();
        feed(bytes, 1);
    }
}

/* Inserts foreign text: escape sequences and controls removed, line ends and tabs kept. */
static void insert_clean(const char *text, size_t len)
{
    size_t need = utf8_strip(NULL, 0, text, len, UTF8_KEEP_NEWLINE | UTF8_KEEP_TAB) + 1;
    char *clean = mem_alloc(need, 1);

    if (!clean)
        return;
    utf8_strip(clean, need, text, len, UTF8_KEEP_NEWLINE | UTF8_KEEP_TAB);
    rl_insert_text(clean);
    mem_free(clean);
}

/* In a message of several rows the arrows move between its rows, and into the history only from the
 * first and the last one. */
static bool arrow(bool up)
{
    int start = rl_point, column, other, width;

    while (start > 0 && rl_line_buffer[start - 1] != '\n')
        start--;
    column = rl_point - start;
    if (up) {
        if (start == 0)
            return false;
        other = start - 1;
        while (other > 0 && rl_line_buffer[other - 1] != '\n')
            other--;
        width = start - 1 - other;
    } else {
        other = rl_point;
        while (other < rl_end && rl_line_buffer[other] != '\n')
            other++;
        if (other == rl_end)
            return false;
        other++;
        for (width = 0; other + width < rl_end && rl_line_buffer[other + width] != '\n'; width++)
            ;
    }
    rl_point = other + (column < width ? column : width);
    while (rl_point > 0 && (rl_line_buffer[rl_point] & 0xc0) == 0x80)
        rl_point--;
    return true;
}

/* Whether readline has a binding. It inserts the tail of an unbound sequence as text; and in some
 * systems' inputrc Insert quotes the next key. */
static bool means_something(const struct input_event *ev)
{
    rl_command_func_t *f;

    if (ev->n_bytes < 2 || ev->bytes[0] != '\033')
        return true;
    f = rl_function_of_keyseq_len(ev->bytes, (size_t)ev->n_bytes, NULL, NULL);
    return f && f != rl_quoted_insert;
}

enum input_result input_key(const struct input_event *ev)
{
    assert(in.null_in);
    mem_free(in.matches);
    in.matches = NULL;
    if (ev->kind == INPUT_PASTE) {
        settle();
        rl_begin_undo_group();
        insert_clean(ev->paste, ev->paste_len);
        rl_end_undo_group();
        return INPUT_NOTHING;
    }
    if (ev->kind != INPUT_KEY)
        return INPUT_NOTHING;
    if ((ev->key == KEY_UP || ev->key == KEY_DOWN) && !ev->mods && !input_busy() &&
        arrow(ev->key == KEY_UP))
        return INPUT_NOTHING;
    if (ev->key == '\r' && (ev->mods & (KEY_SHIFT | KEY_ALT))) {
        rl_insert_text("\n");
        return INPUT_NOTHING;
    }
    if (!means_something(ev))
        return INPUT_NOTHING;
    search_end(ev->bytes, ev->n_bytes);
    feed(ev->bytes, ev->n_bytes);
    return result();
}

static int quotes(const char *s)
{
    int n = 0;

    for (s = strstr(s, "\"\"\""); s; s = strstr(s + 3, "\"\"\""))
        n++;
    return n;
}

enum input_result input_enter(void)
{
    assert(in.null_in);
    mem_free(in.matches);
    in.matches = NULL;
    if (!input_busy() && quotes(rl_line_buffer) % 2) {
        rl_point = rl_end;
        rl_insert_text("\n");
        return INPUT_NOTHING;
    }
    if (!input_busy() && rl_end > 0 && rl_point == rl_end && rl_line_buffer[rl_end - 1] == '\\') {
        rl_delete_text(rl_end - 1, rl_end);
        rl_point = rl_end;
        rl_insert_text("\n");
        return INPUT_NOTHING;
    }
    feed("\r", 1);
    return result();
}

char *input_take(void)
{
    char *line = in.line;
    size_t n;

    assert(in.null_in);
    in.line = NULL;
    in.accepted = false;
    if (!line)
        return NULL;
    n = strlen(line);
    if (n >= 6 && memcmp(line, "\"\"\"", 3) == 0 && memcmp(line + n - 3, "\"\"\"", 3) == 0) {
        char *inner;

        line[n - 3] = 0;
        inner = mem_string(line + 3 + (line[3] == '\n'));
        if (inner) {
            mem_free(line);
            line = inner;
            n = strlen(line);
            if (n && line[n - 1] == '\n')
                line[n - 1] = 0;
        }
    }
    return line;
}

void input_set(const char *text)
{
    assert(in.null_in);
    settle();
    rl_begin_undo_group();
    rl_delete_text(0, rl_end);
    rl_point = 0;
    insert_clean(text, strlen(text));
    rl_end_undo_group();
    rl_point = rl_end;
}

const char *input_text(size_t *len, size_t *cursor)
{
    assert(in.null_in);
    *len = rl_end > 0 ? (size_t)rl_end : 0;
    *cursor = rl_point > 0 ? (size_t)rl_point : 0;
    return rl_line_buffer ? rl_line_buffer : "";
}

const char *input_prompt(const char *normal)
{
    assert(in.null_in);
    return rl_display_prompt && rl_display_prompt[0] ? rl_display_prompt : normal;
}

bool input_empty(void)
{
    return rl_end == 0;
}

bool input_busy(void)
{
    return RL_ISSTATE(RL_STATE_ISEARCH | RL_STATE_NSEARCH | RL_STATE_MULTIKEY |
                      RL_STATE_NUMERICARG) != 0;
}

bool input_wants_escape(void)
{
    return rl_editing_mode == 0;
}

const char *input_matches(void)
{
    return in.matches;
}
