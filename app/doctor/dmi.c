/* The memory modules that the firmware lists (SMBIOS 3, DSP0134, 7.18 "Memory Device", type 17).
 * Every length in the table is checked: firmware is known to write nonsense. */
#include "app/doctor/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define TYPE_MEMORY_DEVICE 17
#define TYPE_END 127
#define CHANNELS_MAX 64
#define STRUCTURES_MAX 4096

struct structure {
    const uint8_t *at;      /* its fields */
    size_t length;          /* of them */
    const uint8_t *strings; /* behind the fields, up to `end` */
    const uint8_t *end;
};

/* The structure at *at, which is behind it then; false: there is none, or it is cut off. */
static bool next_structure(const uint8_t *table, size_t n, size_t *at, struct structure *s)
{
    size_t p;

    if (*at + 4 > n || table[*at + 1] < 4 || *at + table[*at + 1] > n)
        return false;
    s->at = table + *at;
    s->length = s->at[1];
    s->strings = s->at + s->length;
    /* the strings end with an empty one */
    for (p = *at + s->length; p + 1 < n && (table[p] || table[p + 1]); p++)
        ;
    if (p + 1 >= n)
        return false;
    s->end = table + p;
    *at = p + 2;
    return true;
}

static unsigned word_at(const struct structure *s, size_t offset)
{
    return offset + 2 <= s->length ? s->at[offset] | (unsigned)s->at[offset + 1] << 8 : 0;
}

/* The string whose number is in this field. */
static void string_at(const struct structure *s, size_t offset, char *out, size_t size)
{
    const uint8_t *p = s->strings;
    int number = offset < s->length ? s->at[offset] : 0;
    size_t n;

    out[0] = 0;
    if (!number)
        return;
    while (--number && p < s->end) {
        const uint8_t *zero = memchr(p, 0, (size_t)(s->end - p));

        p = zero ? zero + 1 : s->end;
    }
    n = strnlen((const char *)p, (size_t)(s->end - p));
    snprintf(out, size, "%.*s", (int)(n < size ? n : size - 1), (const char *)p);
}

/* The channel that a locator names: "P0 CHANNEL A", "ChannelB-DIMM0"; "": it names none. Boards
 * with several packages or controllers name these before the channel, so that counts too. */
static void channel_name(const char *locator, char *out, size_t size)
{
    const char *p = strcasestr(locator, "channel");
    size_t n;

    out[0] = 0;
    if (!p)
        return;
    n = (size_t)(p - locator) + 7;
    n += strspn(locator + n, " _-");
    if (isalnum((unsigned char)locator[n]))
        snprintf(out, size, "%.*s", (int)(n + 1 < size ? n + 1 : size - 1), locator);
}

struct channels {
    int n;
    char name[CHANNELS_MAX][48];
};

static bool add_channel(struct channels *c, const struct structure *s)
{
    char text[96], name[48];

    string_at(s, 0x11, text, sizeof text); /* the bank's locator */
    channel_name(text, name, sizeof name);
    if (!name[0]) {
        string_at(s, 0x10, text, sizeof text); /* the device's locator */
        channel_name(text, name, sizeof name);
    }
    if (!name[0])
        return false;
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->name[i], name) == 0)
            return true;
    if (c->n == CHANNELS_MAX)
        return false;
    memcpy(c->name[c->n++], name, sizeof name);
    return true;
}

static const char *type_word(int type)
{
    static const struct {
        int type;
        const char *word;
    } words[] = {{0x18, "DDR3"},   {0x1a, "DDR4"}, {0x1e, "LPDDR4"}, {0x22, "DDR5"},
                 {0x23, "LPDDR5"}, {0x20, "HBM"},  {0x21, "HBM2"}};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].type == type)
            return words[i].word;
    return "";
}

/* Configured, else the module's own; 0xffff: in the field that SMBIOS 3.3 added. */
static int speed_of(const struct structure *s)
{
    static const struct {
        size_t field, extended;
    } fields[] = {{0x20, 0x58}, {0x15, 0x54}};

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        unsigned v = word_at(s, fields[i].field);

        if (v == 0xffff)
            v = word_at(s, fields[i].extended);
        if (v)
            return (int)v;
    }
    return 0;
}

void dmi_memory_read(const uint8_t *table, size_t n, struct dmi_memory *out)
{
    static const unsigned unknown_size = 0xffff;
    struct channels channels = {0};
    struct structure s;
    bool all_named = true, all_stated = true;
    size_t at = 0;

    *out = (struct dmi_memory){0};
    for (int i = 0; i < STRUCTURES_MAX && next_structure(table, n, &at, &s); i++) {
        unsigned size = word_at(&s, 0x0c), width = word_at(&s, 0x0a);
        int speed;

        if (s.at[0] == TYPE_END)
            break;
        if (s.at[0] != TYPE_MEMORY_DEVICE || !size || size == unknown_size)
            continue; /* an empty socket */
        out->modules++;
        speed = speed_of(&s);
        all_stated = all_stated && speed > 0;
        if (speed && (!out->speed || speed < out->speed))
            out->speed = speed;
        if (width && width <= 1024)
            out->width = (int)width;
        if (s.length > 0x12)
            snprintf(out->type, sizeof out->type, "%s", type_word(s.at[0x12]));
        all_named = add_channel(&channels, &s) && all_named;
    }
    out->channels = all_named ? channels.n : 0;
    if (!all_stated)
        out->speed = 0;
}
