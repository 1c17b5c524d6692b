/* See theme.h. The heat ramps increase evenly in lightness, so they are readable in grey and by
 * colour-blind users too; the CPU's goes through blue, the GPU's through orange, a second
 * GPU's through reddish purple. */
#include "ui/theme.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const colour_names[16] = {
    "black",        "red",           "green",       "yellow",         "blue",
    "magenta",      "cyan",          "white",       "bright-black",   "bright-red",
    "bright-green", "bright-yellow", "bright-blue", "bright-magenta", "bright-cyan",
    "bright-white",
};

static const struct {
    const char *name, *design[3], *meaning; /* design by depth */
} roles[THEME_ROLE_COUNT] = {
#define X(role, word, c256, c16, c0, text) [role] = {word, {c0, c16, c256}, text},
    THEME_ROLES(X)
#undef X
};

static const struct {
    const char *name;
    int steps;
    int16_t design[3][THEME_RAMP];
} ramps[] = {
    {"ramp-cpu",
     THEME_RAMP,
     {{-1}, {0, 0, 4, 4, 12, 12, 14, 14, 15}, {233, 17, 18, 25, 32, 39, 80, 122, 159}}},
    {"ramp-gpu",
     THEME_RAMP,
     {{-1}, {0, 0, 1, 1, 3, 3, 11, 11, 15}, {233, 52, 94, 130, 166, 208, 214, 221, 229}}},
    {"ramp-gpu2",
     THEME_RAMP,
     {{-1}, {0, 0, 5, 5, 13, 13, 13, 15, 15}, {233, 53, 89, 126, 163, 170, 176, 219, 225}}},
    {"fade", THEME_FADE, {{-1}, {15, 7}, {231, 189}}},
};

static int parse_colour(const char *word, int16_t *out)
{
    char *end;
    long v;
    int i;

    if (strcmp(word, "default") == 0) {
        *out = -1;
        return 0;
    }
    for (i = 0; i < 16; i++)
        if (strcmp(word, colour_names[i]) == 0) {
            *out = (int16_t)i;
            return 0;
        }
    v = strtol(word, &end, 10);
    if (end == word || *end || v < 0 || v > 255)
        return -1;
    *out = (int16_t)v;
    return 0;
}

int theme_parse_style(const char *text, struct style *out)
{
    static const struct {
        const char *name;
        uint16_t bit;
    } attrs[] = {
        {"bold", STYLE_BOLD},           {"dim", STYLE_DIM},         {"italic", STYLE_ITALIC},
        {"underline", STYLE_UNDERLINE}, {"reverse", STYLE_REVERSE},
    };
    struct style s = STYLE_PLAIN;
    bool background = false;

    while (*text) {
        char word[24];
        size_t n = strcspn(text, " \t"), i;

        if (n >= sizeof word)
            return -1;
        memcpy(word, text, n);
        word[n] = 0;
        text += n;
        text += strspn(text, " \t");
        if (!n)
            continue;
        if (strcmp(word, "on") == 0) {
            background = true;
            continue;
        }
        for (i = 0; i < sizeof attrs / sizeof attrs[0]; i++)
            if (strcmp(word, attrs[i].name) == 0)
                break;
        if (i < sizeof attrs / sizeof attrs[0])
            s.attrs |= attrs[i].bit;
        else if (parse_colour(word, background ? &s.bg : &s.fg) < 0)
            return -1;
    }
    *out = s;
    return 0;
}

static int16_t *ramp_of(struct theme *t, size_t i, enum theme_depth depth)
{
    return i < THEME_RAMPS ? t->ramp[i][depth] : t->fade[depth];
}

void theme_init(struct theme *t)
{
    int depth, i;
    size_t r;

    memset(t, 0, sizeof *t);
    t->depth = THEME_256;
    for (depth = 0; depth < 3; depth++) {
        for (i = 0; i < THEME_ROLE_COUNT; i++)
            theme_parse_style(roles[i].design[depth], &t->roles[i][depth]);
        for (r = 0; r < sizeof ramps / sizeof ramps[0]; r++)
            memcpy(ramp_of(t, r, (enum theme_depth)depth), ramps[r].design[depth],
                   sizeof(int16_t) * (size_t)ramps[r].steps);
    }
}

int theme_assign(struct theme *t, const char *name, enum theme_depth depth, const char *value)
{
    size_t r;
    int i;

    assert(depth >= THEME_MONO && depth <= THEME_256);
    for (i = 0; i < THEME_ROLE_COUNT; i++)
        if (strcmp(name, roles[i].name) == 0) {
            struct style s;

            if (theme_parse_style(value, &s) < 0)
                return -2;
            t->roles[i][depth] = s;
            return 0;
        }
    for (r = 0; r < sizeof ramps / sizeof ramps[0]; r++) {
        int16_t steps[THEME_RAMP];

        if (strcmp(name, ramps[r].name) != 0)
            continue;
        for (i = 0; i < ramps[r].steps; i++) {
            char *end;
            long v = strtol(value, &end, 10);

            if (end == value || v < 0 || v > 255)
                return -2;
            steps[i] = (int16_t)v;
            value = end + strspn(end, " ,\t");
        }
        if (*value)
            return -2;
        memcpy(ramp_of(t, r, depth), steps, sizeof(int16_t) * (size_t)ramps[r].steps);
        return 0;
    }
    return -1;
}

struct style theme_of_eight(struct style s)
{
    if (s.fg == 8) {
        s.fg = -1;
        s.attrs = (uint16_t)((s.attrs & ~STYLE_BOLD) | STYLE_DIM);
    } else if (s.fg == 12) {
        s.fg = 6; /* blue is hardly readable on black where bold does not brighten it */
    } else if (s.fg > 8 && s.fg < 16) {
        s.fg = (int16_t)(s.fg - 8);
        s.attrs |= STYLE_BOLD;
    }
    if (s.bg >= 8 && s.bg < 16)
        s.bg = (int16_t)(s.bg - 8);
    return s;
}

int theme_ground_is_light(const char *text)
{
    unsigned c[3];
    int n[4] = {0}, colour;
    const char *last = strrchr(text, ';');

    if (sscanf(text, "rgb:%n%4x%n/%4x/%4x", &n[0], &c[0], &n[1], &c[1], &c[2]) == 3 ||
        sscanf(text, "rgba:%n%4x%n/%4x/%4x", &n[0], &c[0], &n[1], &c[1], &c[2]) == 3) {
        double most = (double)((1ul << 4 * (n[1] - n[0])) - 1); /* 1 to 4 digits each */

        return (0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2]) / most > 0.5;
    }
    if (!last || sscanf(last + 1, "%d", &colour) != 1 || colour < 0 || colour > 15)
        return -1;
    return colour == 7 || colour > 8;
}

/* xterm's palette. */
static double part_of(int colour, int part)
{
    static const uint8_t levels[6] = {0, 95, 135, 175, 215, 255};
    static const int place[3] = {36, 6, 1};

    if (colour >= 232)
        return (8 + (colour - 232) * 10) / 255.0;
    if (colour >= 16)
        return levels[(colour - 16) / place[part] % 6] / 255.0;
    if (colour == 7 || colour == 8)
        return colour == 7 ? 0.9 : 0.5;
    return (colour & 1 << part) ? colour > 8 ? 1 : 0.8 : 0;
}

/* Relative luminance (WCAG 2). Uses black if it is above that of the grey with equal contrast to
 * both. */
struct style theme_on(int16_t colour)
{
    static const double weight[3] = {0.2126, 0.7152, 0.0722};
    double y = 0;

    for (int i = 0; i < 3; i++) {
        double v = part_of(colour, i);

        y += weight[i] * (v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4));
    }
    return (struct style){.fg = y > 0.179     ? colour < 16 ? 0 : 16
                                : colour < 16 ? 15
                                              : 231,
                          .bg = colour};
}

struct style theme_style(const struct theme *t, enum theme_role role)
{
    assert(role < THEME_ROLE_COUNT && t->depth <= THEME_256);
    return t->roles[role][t->depth];
}

const char *theme_role_name(enum theme_role role)
{
    assert(role < THEME_ROLE_COUNT);
    return roles[role].name;
}

const char *theme_role_meaning(enum theme_role role)
{
    assert(role < THEME_ROLE_COUNT);
    return roles[role].meaning;
}

const int16_t *theme_ramp(const struct theme *t, int device)
{
    assert(device >= 0);
    return t->ramp[device < THEME_RAMPS ? device : THEME_RAMPS - 1][t->depth];
}

struct style theme_device(const struct theme *t, int device)
{
    struct style s = theme_style(t, device ? ROLE_STYLE_GPU : ROLE_STYLE_CPU);

    if (device > 1 && t->depth != THEME_MONO)
        s.fg = theme_ramp(t, device)[THEME_RAMP / 2];
    return s;
}
