/* Tokens: each token of the answer, newest first, with its probability, its time and its experts in
 * the layer of the map's cursor. */
#include "ui/draw.h"
#include "ui/glyph.h"
#include "ui/panels/panel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const explain[] = {
    "own %: how probable the model itself held the token, among all tokens, before temperature and "
    "cuts; the same at every temperature",
    "drawn %: its share of the draw, after temperature and cuts; at temperature 0 all of it",
    "left: how many tokens the cuts (top-k, top-p, min-p) left to draw from; only: no choice was "
    "left, however sure the model was",
    "ms: computing time; experts: those of the layer under the map's cursor, the first one first",
    "Enter: what else was likely there, and the token's experts in every layer; Enter again goes "
    "on with the marked one, in a branch beside the answer",
    "the token under the cursor is marked in the text, its experts on the map; Alt-c colours the "
    "answer by what is known of its tokens",
    "a dot: more than 256 tokens came between two pictures, so its experts were not seen",
    NULL,
};

struct state {
    int cursor;        /* number of newer tokens; 0 follows the newest */
    uint64_t n_tokens; /* of the model, when the cursor was set: it stays on its token */
    unsigned list;     /* ui_model.token_lists then */
    bool open;         /* the alternatives are listed, */
    int choice;        /* index of the selected one */
    uint64_t listed;   /* n_tokens at the rows shown, since listed_at */
    uint64_t listed_at;
};

/* tokens shown above an open list, with enough rows, and without */
#define TOKENS_OVER 3
#define PLENTY 14
#define P_W 6 /* "100.0" */
#define DRAWN_W 8
#define LEFT_W 6
#define FORBIDDEN_MARK 0.5f /* above this the model preferred something else */
#define BAR_W 8
#define MS_W 9
#define EXPERTS_W 7 /* two of them, or the heading */

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int tokens_want(const struct ui_model *m, int width)
{
    return 10;
}

static void tokens_side(const struct ui_model *m, const struct panel_view *v, char *out,
                        size_t size)
{
    if (m->live.n_layers)
        snprintf(out, size, "experts of layer %d", m->cursor_layer);
}

static void token_text(char *out, size_t size, const char *text)
{
    size_t n = 0;

    /* A blank at an end would be invisible. */
    for (; *text && n + 4 < size; text++) {
        const char *shown = *text == ' ' ? "␣" : *text == '\n' ? "↵" : NULL;

        if (shown) {
            memcpy(out + n, shown, strlen(shown));
            n += strlen(shown);
        } else {
            out[n++] = *text;
        }
    }
    out[n] = 0;
}

struct columns {
    /* end (p, drawn, left, ms) or start (bar, experts) of each; 0: not shown, but p always is */
    int p, drawn, left, bar, ms, experts;
    int text_w;
};

static struct columns columns_make(struct rect r)
{
    struct columns k = {.text_w = r.w >= 36 ? 14 : 8};

    k.p = r.x + k.text_w + P_W;
    if (r.w >= 42)
        k.drawn = k.p + DRAWN_W;
    if (r.w >= 30) /* else the experts get its space: half of it is useless */
        k.left = (k.drawn ? k.drawn : k.p) + LEFT_W;
    k.experts = (k.left ? k.left : k.p) + 1;
    if (r.w >= 54) {
        k.bar = k.experts;
        k.ms = k.bar + BAR_W + MS_W;
        k.experts = k.ms + 2;
    }
    if (k.experts + EXPERTS_W > r.x + r.w)
        k.experts = 0;
    return k;
}

static void heading(struct canvas *c, struct rect r, const struct ui_model *m,
                    const struct columns *k)
{
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    char text[24];

    canvas_text(c, r.x, r.y, dim, "token");
    canvas_text_right(c, k->p, r.y, dim, "own %");
    if (k->drawn)
        canvas_text_right(c, k->drawn, r.y, dim, "drawn %");
    if (k->left)
        canvas_text_right(c, k->left, r.y, dim, "left");
    if (k->ms)
        canvas_text_right(c, k->ms, r.y, dim, "ms");
    /* the title names the layer, if it fits */
    snprintf(text, sizeof text, k->left ? "experts" : "E of L%d", m->cursor_layer);
    if (k->experts)
        canvas_text_fit(c, k->experts, r.y, r.x + r.w - k->experts, dim, text);
}

/* The experts in the layer of the map's cursor. */
static void experts(struct canvas *c, int x, int y, int end, const struct ui_model *m, uint64_t at)
{
    const uint16_t *row = m->token_experts + at * (uint64_t)m->token_width +
                          (uint64_t)(m->cursor_layer * m->live.n_experts_used);

    for (int i = 0; i < m->live.n_experts_used; i++) {
        char word[16];

        if (row[i] == TELEMETRY_NO_EXPERT)
            continue;
        snprintf(word, sizeof word, "E%d", row[i]);
        if (x + (int)strlen(word) > end) {
            canvas_put(c, x < end ? x : end - 1, y, theme_style(&m->theme, ROLE_STYLE_DIM), 0x2026);
            return;
        }
        x = canvas_text(c, x, y,
                        theme_device(&m->theme, ui_cell_device(m, m->cursor_layer, row[i])), word) +
            1;
    }
}

/* Moves the cursor by the number of new tokens, so that it stays on its token as long as that is
 * stored. */
static void cursor_follow(struct state *s, const struct ui_model *m)
{
    uint64_t came = m->n_tokens - s->n_tokens, most = (uint64_t)(UI_TOKENS - 1 - s->cursor);

    if (s->list != m->token_lists)
        s->cursor = 0;
    else if (s->cursor > 0)
        s->cursor += (int)(came < most ? came : most);
    s->n_tokens = m->n_tokens;
    s->list = m->token_lists;
}

/* Moves to the clicked token; the marked one is the cursor's. */
static void cursor_mark(struct state *s, struct ui_model *m)
{
    if (m->asked && m->asked <= m->n_tokens && m->n_tokens - m->asked < UI_TOKENS)
        s->cursor = (int)(m->n_tokens - m->asked);
    m->asked = 0;
    ui_model_mark(m, m->n_tokens - (uint64_t)s->cursor);
}

static void tokens_focused(struct ui_model *m, const struct panel_view *v)
{
    struct state *s = v->state;

    cursor_follow(s, m);
    s->open = s->open && !m->asked;
    cursor_mark(s, m);
}

/* "52.0"; a dash: not drawn. */
static void share_text(char *out, size_t size, const struct ui_token *token)
{
    if (token->share > 0)
        snprintf(out, size, "%.1f", token->share * 100);
    else
        snprintf(out, size, "\u2013");
}

/* Draws the token stored at `at`. */
static void row(struct canvas *c, struct rect r, const struct ui_model *m, const struct columns *k,
                uint64_t at, bool newest, bool selected)
{
    const struct theme *t = &m->theme;
    const struct ui_token *token = &m->tokens[at];
    struct style s = theme_style(t, newest && m->running ? ROLE_STYLE_NEW : ROLE_STYLE_TEXT),
                 dim = theme_style(t, ROLE_STYLE_DIM);
    char text[96];

    token_text(text, sizeof text, token->text[0] ? token->text : "·");
    if (selected)
        canvas_fill(c, (struct rect){r.x, r.y, k->text_w, 1}, s = theme_style(t, ROLE_STYLE_SELECT),
                    ' ');
    canvas_text_fit(c, r.x, r.y, k->text_w, s, text);
    snprintf(text, sizeof text, "%.1f", token->probability * 100);
    canvas_text_right(c, k->p, r.y, theme_style(t, ROLE_STYLE_FIGURE), text);
    if (k->drawn) {
        share_text(text, sizeof text, token);
        canvas_text_right(c, k->drawn, r.y, dim, text);
    }
    /* ! if the model preferred something that the grammar excludes */
    snprintf(text, sizeof text, token->candidates == 1 ? "%sonly" : "%s%d",
             token->forbidden > FORBIDDEN_MARK ? "!" : "", token->candidates);
    if (!k->left && token->forbidden > FORBIDDEN_MARK)
        canvas_put(c, k->p, r.y, theme_style(t, ROLE_STYLE_TROUBLE), '!');
    if (k->left)
        canvas_text_right(
            c, k->left, r.y,
            token->forbidden > FORBIDDEN_MARK ? theme_style(t, ROLE_STYLE_TROUBLE) : dim, text);
    if (k->ms) {
        draw_line(c, k->bar + 1, r.y, BAR_W, token->probability, theme_style(t, ROLE_STYLE_GRAPH),
                  theme_style(t, ROLE_STYLE_RULE));
        snprintf(text, sizeof text, "%.2f", token->us * 1e-3);
        canvas_text_right(c, k->ms, r.y, dim, text);
    }
    if (!k->experts)
        return;
    if (token->has_experts && m->cursor_layer < m->live.n_layers)
        experts(c, k->experts, r.y, r.x + r.w, m, at);
    else
        canvas_put(c, k->experts, r.y, dim, 0xb7);
}

/* The token at the cursor; NULL: none. */
static const struct ui_token *selected(const struct state *s, const struct ui_model *m)
{
    uint64_t kept = m->n_tokens < UI_TOKENS ? m->n_tokens : UI_TOKENS;

    return (uint64_t)s->cursor < kept
               ? &m->tokens[(m->n_tokens - 1 - (uint64_t)s->cursor) % UI_TOKENS]
               : NULL;
}

/* Draws the alternatives, with the selected one in view. */
static void alternatives_draw(struct canvas *c, struct rect r, const struct ui_model *m,
                              const struct state *s)
{
    const struct theme *t = &m->theme;
    const struct ui_token *token = selected(s, m);
    int top = s->choice >= r.h - 1 ? s->choice - (r.h - 1) + 1 : 0;

    canvas_fill(c, (struct rect){r.x, r.y, r.w, 1}, theme_style(t, ROLE_STYLE_RULE), 0x2500);
    canvas_text_fit(c, r.x + 1, r.y, r.w - 2, theme_style(t, ROLE_STYLE_DIM),
                    r.w >= 36 ? " likely here · Enter takes, Esc " : " likely here ");
    for (int i = top; i < token->likely.n && i - top < r.h - 1; i++) {
        char text[64] = "", shown[96], share[16];
        int y = r.y + 1 + i - top;

        if (m->token_text)
            m->token_text(m->token_text_ctx, token->likely.ids[i], text, sizeof text);
        token_text(shown, sizeof shown, text[0] ? text : "·");
        if (i == s->choice)
            canvas_fill(c, (struct rect){r.x, y, r.w, 1}, theme_style(t, ROLE_STYLE_SELECT), ' ');
        canvas_text_fit(c, r.x + 2, y, r.w - 10,
                        theme_style(t, i == s->choice ? ROLE_STYLE_SELECT : ROLE_STYLE_TEXT),
                        shown);
        if (token->likely.ids[i] == token->id)
            canvas_put(c, r.x, y, theme_style(t, ROLE_STYLE_FOCUS), 0x25b8);
        snprintf(share, sizeof share, "%.1f %%", exp(token->likely.logprobs[i]) * 100);
        canvas_text_right(c, r.x + r.w, y,
                          theme_style(t, i == s->choice ? ROLE_STYLE_SELECT : ROLE_STYLE_FIGURE),
                          share);
    }
}

/* "L0 8 2  L1 5 9 …": the token's experts in every layer; returns the rows, drawn if c is
 * given. */
static int layers_draw(struct canvas *c, struct rect r, const struct ui_model *m,
                       const struct state *s)
{
    const struct ui_token *token = selected(s, m);
    const uint16_t *row = m->token_experts +
                          (uint64_t)(token - m->tokens) * (uint64_t)m->token_width;
    int x = 0, y = 0, used = m->live.n_experts_used;

    if (!token->has_experts)
        return 0;
    for (int l = 0; l < m->live.n_layers; l++) {
        char word[96];
        int n = snprintf(word, sizeof word, "L%d", l), head = n;

        for (int i = 0; i < used && n < (int)sizeof word - 8; i++)
            if (row[l * used + i] != TELEMETRY_NO_EXPERT)
                n += snprintf(word + n, sizeof word - (size_t)n, " %d", row[l * used + i]);
        if (n == head) /* no experts there */
            continue;
        if (x && x + n > r.w) {
            x = 0;
            y++;
        }
        if (c && y < r.h) {
            canvas_text_n(c, r.x + x, r.y + y, theme_style(&m->theme, ROLE_STYLE_DIM), word,
                          (size_t)head);
            canvas_text_fit(c, r.x + x + head, r.y + y, r.w - x - head,
                            theme_style(&m->theme, ROLE_STYLE_TEXT), word + head);
        }
        x += n + 2;
    }
    return y + 1;
}

/* "own 31.4 %  drawn 52.0 % of 12  9.40 ms" in one row, or in two; returns the rows, drawn if c is
 * given. */
static int figures_draw(struct canvas *c, struct rect r, const struct ui_model *m,
                        const struct state *s)
{
    const struct ui_token *token = selected(s, m);
    struct style style = theme_style(&m->theme, ROLE_STYLE_TEXT);
    char own[48], drawn[64], share[16];
    int x = r.x;

    share_text(share, sizeof share, token);
    snprintf(own, sizeof own, "own %.1f %%  %.2f ms", token->probability * 100, token->us * 1e-3);
    snprintf(drawn, sizeof drawn, "drawn %s %% of %d left", share, token->candidates);
    if ((int)(strlen(own) + 2 + strlen(drawn)) <= r.w) {
        if (c && r.h > 0) {
            x = canvas_text(c, x, r.y, style, own) + 2;
            canvas_text(c, x, r.y, style, drawn);
        }
        return 1;
    }
    if (c && r.h > 0)
        canvas_text_fit(c, x, r.y, r.w, style, own);
    if (c && r.h > 1)
        canvas_text_fit(c, x, r.y + 1, r.w, style, drawn);
    return 2;
}

/* How many tokens are newer than those shown. While the engine computes at full speed the rows are
 * updated four times a second: each of them changes with every token, nobody can read them faster,
 * and they were four fifths of all bytes written. */
static int tokens_behind(struct state *s, const struct ui_model *m, const struct panel_view *v)
{
    bool free = m->running && m->pace <= 0;

    if (!free || v->focused || !s->listed || s->listed > m->n_tokens ||
        m->now >= s->listed_at + UI_SAMPLE_NS) {
        s->listed = m->n_tokens;
        s->listed_at = m->now;
    }
    return smaller((int)(m->n_tokens - s->listed), UI_TOKENS - 1);
}

static bool answers(const struct ui_model *m)
{
    for (size_t i = 0; i < m->n_blocks; i++)
        if (m->blocks[i].kind == UI_ASSISTANT)
            return true;
    return false;
}

static void tokens_draw(struct canvas *c, struct rect r, struct ui_model *m,
                        const struct panel_view *v)
{
    struct state *s = v->state;
    uint64_t kept = m->n_tokens < UI_TOKENS ? m->n_tokens : UI_TOKENS;
    struct columns k = columns_make(r);
    int top, behind = tokens_behind(s, m, v);

    cursor_follow(s, m);
    if (!kept) {
        canvas_text_fit(c, r.x, r.y, r.w, theme_style(&m->theme, ROLE_STYLE_DIM),
                        m->forgotten && answers(m) ? "not kept of this answer" : "no tokens yet");
        return;
    }
    if (r.h >= 2) {
        heading(c, r, m, &k);
        r.y++;
        r.h--;
    }
    if (s->cursor >= (int)kept)
        s->cursor = (int)kept - 1;
    if (v->focused)
        cursor_mark(s, m);
    s->open = s->open && v->focused && selected(s, m)->likely.n > 0;
    if (s->open && r.h >= 2) {
        int rows = selected(s, m)->likely.n + 1, figures = figures_draw(NULL, r, m, s),
            layers = layers_draw(NULL, r, m, s), most = r.h > PLENTY ? r.h - TOKENS_OVER : r.h - 1;

        /* if rows are short the list scrolls, and only the first layers are shown */
        figures = figures > most / 3 ? 0 : figures;
        most -= figures;
        if (rows > most - layers)
            rows = smaller(rows, most - layers > most * 2 / 3 ? most - layers : most * 2 / 3);
        layers = smaller(layers, most - rows);
        r.h -= rows + figures + layers;
        alternatives_draw(c, (struct rect){r.x, r.y + r.h, r.w, rows}, m, s);
        figures_draw(c, (struct rect){r.x, r.y + r.h + rows, r.w, figures}, m, s);
        layers_draw(c, (struct rect){r.x, r.y + r.h + rows + figures, r.w, layers}, m, s);
    }
    top = s->cursor >= r.h ? s->cursor - r.h + 1 : behind;
    for (int y = 0; y < r.h && (uint64_t)(top + y) < kept; y++)
        row(c, (struct rect){r.x, r.y + y, r.w, 1}, m, &k,
            (m->n_tokens - 1 - (uint64_t)(top + y)) % UI_TOKENS, top + y == behind,
            v->focused && top + y == s->cursor);
}

/* Keys of the list of alternatives; false: not handled. */
static bool alternatives_act(struct state *s, struct ui_model *m, enum action a)
{
    const struct ui_token *token = selected(s, m);
    int n = token ? token->likely.n : 0;

    if (!s->open) {
        s->open = a == ACTION_CHOOSE && n > 0;
        s->choice = 0;
        return s->open;
    }
    switch (a) {
    case ACTION_UP: s->choice -= s->choice > 0; return true;
    case ACTION_DOWN: s->choice += s->choice + 1 < n; return true;
    case ACTION_FIRST: s->choice = 0; return true;
    case ACTION_LAST: s->choice = n - 1; return true;
    case ACTION_FOCUS_LEAVE: s->open = false; return true;
    case ACTION_CHOOSE:
        s->open = false;
        m->instead_of = s->cursor;
        m->instead = s->choice < n ? token->likely.ids[s->choice] : -1;
        return false; /* carried out by the chat */
    default: return false;
    }
}

/* Rows for the list, the figures and the experts below the heading and some tokens. */
static int tokens_opened(const struct ui_model *m, const struct panel_view *v, int width)
{
    const struct state *s = v->state;
    const struct ui_token *token = selected(s, m);
    struct rect r = {0, 0, width, 0};

    if (!s->open || !token || !token->likely.n)
        return 0;
    return 1 + TOKENS_OVER + token->likely.n + 1 + figures_draw(NULL, r, m, s) +
           layers_draw(NULL, r, m, s);
}

static bool tokens_act(struct ui_model *m, const struct panel_view *v, enum action a)
{
    int most = (int)(m->n_tokens < UI_TOKENS ? m->n_tokens : UI_TOKENS) - 1, at;
    struct state *s = v->state;

    cursor_follow(s, m);
    if (alternatives_act(s, m, a))
        return true;
    at = s->cursor;
    switch (a) {
    case ACTION_UP: at--; break;
    case ACTION_DOWN: at++; break;
    case ACTION_PAGE_UP: at -= 10; break;
    case ACTION_PAGE_DOWN: at += 10; break;
    case ACTION_FIRST: at = 0; break;
    case ACTION_LAST: at = most; break;
    case ACTION_LEFT: m->cursor_layer -= m->cursor_layer > 0; return true;
    case ACTION_RIGHT: m->cursor_layer += m->cursor_layer + 1 < m->live.n_layers; return true;
    case ACTION_LENS:
        m->instead_of = s->cursor;
        m->lens = most >= 0;
        return false; /* carried out by the chat */
    default: return false;
    }
    s->cursor = at > most ? most < 0 ? 0 : most : at < 0 ? 0 : at;
    cursor_mark(s, m);
    return true;
}

const struct panel panel_tokens = {
    .name = "tokens",
    .place = PANEL_OF_CHAT,
    .open = true,
    .state_size = sizeof(struct state),
    .column = 1,
    .priority = 6,
    .min = 3,
    .grow = 2,
    .want = tokens_want,
    .opened = tokens_opened,
    .draw = tokens_draw,
    .side = tokens_side,
    .act = tokens_act,
    .focused = tokens_focused,
    .explain = explain,
    .keys = "arrows, Enter",
};
