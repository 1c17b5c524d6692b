/* Tokens: each token of the answer, newest first, with its probability, its time and the experts of the layer the map's cursor is on. */
#include "ui/draw.h"
#include "ui/glyph.h"
#include "ui/panel.h"

#include <stdio.h>
#include <string.h>

static const char *const explain[] = {
    "p: how probable the token was after temperature and cuts (greedy: at temperature 1)",
    "ms: computing time; experts: those of the layer under the map's cursor, the first one first",
    "a dot: more than 256 tokens came between two pictures, so its experts were not seen",
    NULL,
};

static int want(const struct ui_model *m, int width)
{
    return 10;
}

static void side(const struct ui_model *m, char *out, size_t size)
{
    if (m->live.n_layers)
        snprintf(out, size, "experts of layer %d", m->cursor_layer);
}

static void token_text(char *out, size_t size, const char *text)
{
    size_t n = 0;

    /* A blank at an end would not be seen. */
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

static void draw(struct canvas *c, struct rect r, struct ui_model *m)
{
    const struct theme *t = &m->theme;
    uint64_t kept = m->n_tokens < UI_TOKENS ? m->n_tokens : UI_TOKENS;
    int text_w = r.w >= 36 ? 14 : 9, top = m->token_cursor >= r.h ? m->token_cursor - r.h + 1 : 0, y;

    if (!kept) {
        canvas_text_fit(c, r.x, r.y, r.w, theme_style(t, ROLE_STYLE_DIM), "no tokens yet");
        return;
    }
    if (m->token_cursor >= (int)kept)
        m->token_cursor = (int)kept - 1;
    for (y = 0; y < r.h && (uint64_t)(top + y) < kept; y++) {
        uint64_t at = (m->n_tokens - 1 - (uint64_t)(top + y)) % UI_TOKENS;
        const struct ui_token *k = &m->tokens[at];
        char text[96], line[64];
        struct style s = theme_style(t, top + y == 0 && m->running ? ROLE_STYLE_NEW : ROLE_STYLE_TEXT);
        int x;

        token_text(text, sizeof text, k->text[0] ? k->text : "·");
        if (m->focus == PANEL_TOKENS && top + y == m->token_cursor)
            canvas_fill(c, (struct rect){r.x, r.y + y, text_w, 1}, s = theme_style(t, ROLE_STYLE_SELECT), ' ');
        canvas_text_fit(c, r.x, r.y + y, text_w, s, text);
        x = r.x + text_w + 1;
        snprintf(line, sizeof line, "%5.1f", k->probability * 100);
        canvas_text(c, x, r.y + y, theme_style(t, ROLE_STYLE_FIGURE), line);
        canvas_text(c, x + 6, r.y + y, theme_style(t, ROLE_STYLE_DIM), "%");
        x += 8;
        if (r.w >= 46) {
            draw_line(c, x, r.y + y, 8, k->probability, theme_style(t, ROLE_STYLE_GRAPH), theme_style(t, ROLE_STYLE_RULE));
            x += 8;
            snprintf(line, sizeof line, "%6.2f ms", k->us * 1e-3);
            canvas_text(c, x, r.y + y, theme_style(t, ROLE_STYLE_DIM), line);
            x += 10;
        }
        if (k->has_experts && m->cursor_layer < m->live.n_layers) {
            const uint16_t *row = m->token_experts + at * (uint64_t)m->token_width + (uint64_t)(m->cursor_layer * m->live.n_experts_used);
            int i;

            for (i = 0; i < m->live.n_experts_used; i++) {
                snprintf(line, sizeof line, "E%d", row[i]);
                if (x + (int)strlen(line) > r.x + r.w) {
                    canvas_put(c, x - 1, r.y + y, theme_style(t, ROLE_STYLE_DIM), 0x2026);
                    break;
                }
                x = canvas_text(c, x, r.y + y, theme_style(t, ui_cell_on_gpu(m, m->cursor_layer, row[i]) ? ROLE_STYLE_GPU : ROLE_STYLE_CPU), line) + 1;
            }
        } else {
            canvas_put(c, x, r.y + y, theme_style(t, ROLE_STYLE_DIM), 0xb7);
        }
    }
}

static bool act(struct ui_model *m, enum action a)
{
    int most = (int)(m->n_tokens < UI_TOKENS ? m->n_tokens : UI_TOKENS) - 1, at = m->token_cursor;

    switch (a) {
    case ACTION_UP: at--; break;
    case ACTION_DOWN: at++; break;
    case ACTION_PAGE_UP: at -= 10; break;
    case ACTION_PAGE_DOWN: at += 10; break;
    case ACTION_FIRST: at = 0; break;
    case ACTION_LAST: at = most; break;
    case ACTION_LEFT: m->cursor_layer -= m->cursor_layer > 0; return true;
    case ACTION_RIGHT: m->cursor_layer += m->cursor_layer + 1 < m->live.n_layers; return true;
    default: return false;
    }
    m->token_cursor = at > most ? most < 0 ? 0 : most : at < 0 ? 0 : at;
    return true;
}

const struct panel panel_tokens = {
    .name = "tokens", .help = "each token with its probability, its time and its experts", .open = true, .column = 1, .priority = 6,
    .min = 3, .grow = 2, .want = want, .draw = draw, .side = side, .act = act, .explain = explain,
};
