/* Colours by role. A theme is plain data: the program fills it from a YAML file
 * (app/setup/screen/theme_file.c) with theme_assign; panels use roles, never colours. One theme
 * holds three designs: 256 colours, 16 colours, none; depth selects one. Any thread once filled. */
#ifndef UI_THEME_H
#define UI_THEME_H

#include "ui/canvas.h"

/* role, name in theme files, 256-colour design, 16-colour design, design without colours, meaning
 */
/* clang-format off */
#define THEME_ROLES(X)                                                                        \
    X(ROLE_STYLE_TEXT, "text", "default", "default", "default",                               \
      "the chat and everything not named below")                                              \
    X(ROLE_STYLE_DIM, "dim", "245", "bright-black", "dim",                                    \
      "labels, hints, what may be overlooked")                                                \
    X(ROLE_STYLE_RULE, "rule", "238", "bright-black", "dim",                                  \
      "rules between the parts of the screen")                                                \
    X(ROLE_STYLE_TITLE, "title", "default", "default", "bold", "names of panels")             \
    X(ROLE_STYLE_BAR, "bar", "252 on 236", "default", "default", "the title line")            \
    X(ROLE_STYLE_BRAND, "brand", "117 on 236 bold", "bright-cyan bold", "bold",               \
      "the program's name in it")                                                             \
    X(ROLE_STYLE_FIGURE, "figure", "bold", "bold", "bold", "numbers that matter")             \
    X(ROLE_STYLE_FOCUS, "focus", "117 bold", "bright-cyan bold", "bold",                      \
      "title of the panel that has the keys")                                                 \
    X(ROLE_STYLE_USER, "user", "117 bold", "bright-cyan bold", "bold", "who speaks: you")     \
    X(ROLE_STYLE_USER_TEXT, "user-text", "default", "default", "default", "what you wrote")   \
    X(ROLE_STYLE_ASSISTANT, "assistant", "151 bold", "bright-green bold", "bold",             \
      "who speaks: the model")                                                                \
    X(ROLE_STYLE_NOTICE, "notice", "179", "yellow", "italic", "lines of the program itself")  \
    X(ROLE_STYLE_CODE, "code", "223 on 235", "yellow", "default", "code in answers")          \
    X(ROLE_STYLE_HEADING, "heading", "bold underline", "bold underline", "bold underline",    \
      "headings in answers")                                                                  \
    X(ROLE_STYLE_CPU, "cpu", "75", "bright-blue", "default", "the CPU: bars, shares, names")  \
    X(ROLE_STYLE_GPU, "gpu", "215", "bright-yellow", "bold", "the GPU: bars, shares, names")  \
    X(ROLE_STYLE_GRAPH, "graph", "109", "cyan", "default", "histories and bars of no device") \
    X(ROLE_STYLE_TROUBLE, "trouble", "203 bold", "bright-red bold", "bold reverse",           \
      "trouble, and only that")                                                               \
    X(ROLE_STYLE_SELECT, "select", "reverse", "reverse", "reverse",                           \
      "the cell or line the cursor is on")                                                    \
    X(ROLE_STYLE_NEW, "new", "bold", "bold", "bold", "what has just happened")                \
    X(ROLE_STYLE_INPUT, "input", "default", "default", "default", "what you are typing")      \
    X(ROLE_STYLE_PROMPT, "prompt", "117 bold", "bright-cyan bold", "bold",                    \
      "the prompt before it")
/* clang-format on */

enum theme_role {
#define X(role, name, c256, c16, c0, text) role,
    THEME_ROLES(X)
#undef X
        THEME_ROLE_COUNT
};

enum theme_depth { THEME_MONO, THEME_16, THEME_256 };

#define THEME_RAMP 9  /* steps of a heat ramp, lowest use first */
#define THEME_RAMPS 3 /* the CPU's, the GPU's, those of further GPUs: by device */
#define THEME_FADE 2  /* fading steps of the newest token's highlight, brightest first */

struct theme {
    enum theme_depth depth;
    bool ascii;                              /* the terminal shows ASCII only: no half blocks */
    struct style roles[THEME_ROLE_COUNT][3]; /* by depth */
    /* palette indices by depth; mono: unused */
    int16_t ramp[THEME_RAMPS][3][THEME_RAMP];
    int16_t fade[3][THEME_FADE];
};

void theme_init(struct theme *t); /* the built-in design, THEME_256 */
/* "255 on 236 bold", "bright-blue", "default", "dim": palette index or name, `on` background,
 * attributes. -1: not understood. */
int theme_parse_style(const char *text, struct style *out);
/* Sets a role or a ramp ("ramp-cpu", "ramp-gpu", "ramp-gpu2", "fade": as many palette indices as it
 * has steps) at one depth by its name in theme files. 0; -1: no such name; -2: the value is not
 * understood. */
int theme_assign(struct theme *t, const char *name, enum theme_depth depth, const char *value);
/* The style for 8 colours: the bright ones are bold, bright blue is cyan (blue on black is hardly
 * readable where bold does not brighten), and grey is dim (bold black is black on many
 * terminals). */
struct style theme_of_eight(struct style s);
/* A terminal's background, "rgb:ffff/ffff/ffff" (OSC 11) or "15;default;0" (COLORFGBG): 1 light, 0
 * dark, -1 not understood. */
int theme_ground_is_light(const char *text);
/* The heat ramp of a device at the theme's depth: THEME_RAMP palette indices. */
const int16_t *theme_ramp(const struct theme *t, int device);
/* What is written of a device: ROLE_STYLE_CPU, ROLE_STYLE_GPU, further GPUs in their ramp's colour.
 */
struct style theme_device(const struct theme *t, int device);
/* Black or white on a colour of the palette, whichever is readable: a contrast of at least 4.5. */
struct style theme_on(int16_t colour);
struct style theme_style(const struct theme *t, enum theme_role role);
const char *theme_role_name(enum theme_role role);
const char *theme_role_meaning(enum theme_role role);

#endif
