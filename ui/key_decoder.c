/* See key_decoder.h. Sequences are those of xterm and what imitates it, of rxvt, of the Linux
 * console, and of the kitty protocol's CSI u. */
#include "ui/key_decoder.h"
#include "engine/base/error.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#include <assert.h>
#include <string.h>

#define PASTE_MOST ((size_t)8 << 20)

static const char paste_end[] = "\033[201~";

void decode_init(struct decode *d)
{
    memset(d, 0, sizeof *d);
}

void decode_release(struct decode *d)
{
    mem_free(d->buffer);
    mem_free(d->paste);
    memset(d, 0, sizeof *d);
}

int decode_push(struct decode *d, const void *bytes, size_t n)
{
    assert((bytes || n == 0) && d->used <= d->size);
    if (d->used + n > d->size) {
        size_t size = (d->used + n) * 2 + 64;

        if (!MEM_FIT(d->buffer, size))
            return ERR_MEMORY;
        d->size = size;
    }
    memcpy(d->buffer + d->used, bytes, n);
    d->used += n;
    return 0;
}

bool decode_waiting(const struct decode *d)
{
    return d->used > 0 && !d->pasting;
}

static void consume(struct decode *d, size_t n)
{
    assert(n <= d->used);
    d->used -= n;
    memmove(d->buffer, d->buffer + n, d->used);
}

static int key(struct decode *d, struct input_event *out, size_t n, uint32_t code, unsigned mods)
{
    size_t keep = n < sizeof out->bytes ? n : sizeof out->bytes;

    out->kind = INPUT_KEY;
    out->key = code;
    out->mods = mods;
    memcpy(out->bytes, d->buffer, keep);
    out->n_bytes = (int)keep;
    consume(d, n);
    return 1;
}

static uint32_t tilde_key(int number)
{
    static const struct {
        int number;
        uint32_t key;
    } map[] = {
        {1, KEY_HOME},      {2, KEY_INSERT}, {3, KEY_DELETE}, {4, KEY_END},  {5, KEY_PAGE_UP},
        {6, KEY_PAGE_DOWN}, {7, KEY_HOME},   {8, KEY_END},    {11, KEY_F1},  {12, KEY_F2},
        {13, KEY_F3},       {14, KEY_F4},    {15, KEY_F5},    {17, KEY_F6},  {18, KEY_F7},
        {19, KEY_F8},       {20, KEY_F9},    {21, KEY_F10},   {23, KEY_F11}, {24, KEY_F12},
    };
    size_t i;

    for (i = 0; i < sizeof map / sizeof map[0]; i++)
        if (map[i].number == number)
            return map[i].key;
    return 0;
}

static uint32_t letter_key(unsigned char c)
{
    switch (c) {
    case 'A': return KEY_UP;
    case 'B': return KEY_DOWN;
    case 'C': return KEY_RIGHT;
    case 'D': return KEY_LEFT;
    case 'H': return KEY_HOME;
    case 'F': return KEY_END;
    case 'Z': return KEY_BACKTAB;
    case 'P': return KEY_F1;
    case 'Q': return KEY_F2;
    case 'R': return KEY_F3;
    case 'S': return KEY_F4;
    default: return 0;
    }
}

/* buffer[at] is '[' after Esc (and perhaps another Esc). Returns -1: incomplete, 0: consumed
 * without an event, 1: event. */
static int csi(struct decode *d, size_t at, unsigned mods, struct input_event *out)
{
    const unsigned char *b = d->buffer;
    size_t i = at + 1;
    int params[4] = {0}, n = 0;
    unsigned char final;
    uint32_t code = 0;

    if (i < d->used && b[i] == '[') { /* Linux console: ESC [ [ A */
        if (i + 1 >= d->used)
            return -1;
        if (b[i + 1] >= 'A' && b[i + 1] <= 'E')
            return key(d, out, i + 2, KEY_F1 + (uint32_t)(b[i + 1] - 'A'), mods);
        consume(d, i + 2);
        return 0;
    }
    while (i < d->used && b[i] >= 0x20 && b[i] < 0x40 && i < at + 40 &&
           !(b[i] == '$' && b[at + 1] != '?' && params[0] && n == 0)) {
        if (b[i] >= '0' && b[i] <= '9') {
            if (n < 4 && params[n] < 100000)
                params[n] = params[n] * 10 + (b[i] - '0');
        } else if (b[i] == ';' || b[i] == ':') {
            n = n < 3 ? n + 1 : n;
        }
        i++;
    }
    if (i >= d->used)
        return -1;
    final = b[i++];
    if (final == '$' && params[0]) /* rxvt: Shift and a key */
        final = '~', mods |= KEY_SHIFT;
    if (final < 0x40 || final > 0x7e) {
        consume(d, i);
        return 0;
    }
    if (b[at + 1] == '<' && (final == 'M' || final == 'm')) {
        int button = params[0];

        out->x = params[1] - 1;
        out->y = params[2] - 1;
        consume(d, i);
        if (final == 'M' && (button & 0x43) >= 0x40 && (button & 3) < 2) {
            out->kind = INPUT_WHEEL;
            out->amount = (button & 1) ? 3 : -3;
            return 1;
        }
        if (final == 'M' && (button & 0xc3) == 0 && !(button & 32)) {
            out->kind = INPUT_CLICK;
            return 1;
        }
        return 0;
    }
    if (final == '~' && params[0] == 200) {
        d->pasting = true;
        d->paste_used = 0;
        d->paste_return = false;
        consume(d, i);
        return 0;
    }
    if (n >= 1 && params[1] > 1)
        mods |= (unsigned)(params[1] - 1) & 7;
    if (final == '~')
        code = tilde_key(params[0]);
    else if (final == 'u' && b[at + 1] != '<' && params[0] > 0)
        code = (uint32_t)params[0];
    else
        code = letter_key(final);
    if (!code) {
        consume(d, i);
        return 0;
    }
    return key(d, out, i, code, mods);
}

/* Moves paste bytes over; returns 1 at the end mark. A partial end mark stays in the buffer. */
static int paste_collect(struct decode *d, struct input_event *out)
{
    size_t i = 0, mark = sizeof paste_end - 1, take = d->used;
    bool ended = false;

    for (i = 0; i < d->used; i++) {
        size_t rest = d->used - i < mark ? d->used - i : mark;

        if (d->buffer[i] == 0x1b && memcmp(d->buffer + i, paste_end, rest) == 0) {
            take = i;
            ended = rest == mark;
            break;
        }
    }
    if (d->paste_used + take + 1 > d->paste_size && d->paste_used + take < PASTE_MOST) {
        size_t size = (d->paste_used + take) * 2 + 256;

        if (MEM_FIT(d->paste, size))
            d->paste_size = size;
    }
    for (i = 0; i < take && d->paste_used + 1 < d->paste_size; i++) {
        char c = (char)d->buffer[i];

        if (c != '\n' || !d->paste_return)
            d->paste[d->paste_used++] = c == '\r' ? '\n' : c;
        d->paste_return = c == '\r';
    }
    consume(d, take + (ended ? mark : 0));
    if (!ended)
        return 0;
    d->pasting = false;
    out->kind = INPUT_PASTE;
    if (d->paste)
        d->paste[d->paste_used] = 0;
    out->paste = d->paste_used ? d->paste : (char *)"";
    out->paste_len = d->paste_used;
    return 1;
}

/* Length of a terminal's reply that ends with BEL or Esc \ (OSC, DCS, APC), if its start can be
 * distinguished from Alt and a letter; 0: it is none, SIZE_MAX: incomplete. */
static size_t string_sequence(const unsigned char *b, size_t n)
{
    bool begins = n >= 3 &&
                  ((b[1] == ']' && b[2] >= '0' && b[2] <= '9') ||
                   (b[1] == 'P' && b[2] && strchr("01>!$", b[2])) || (b[1] == '_' && b[2] == 'G'));

    for (size_t i = 3; begins && i < n; i++) {
        if (b[i] == '\a')
            return i + 1;
        if (b[i] == '\\' && b[i - 1] == 0x1b)
            return i + 1;
    }
    return begins ? SIZE_MAX : 0;
}

/* One step at a non-empty buffer; as csi. */
static int step(struct decode *d, bool late, struct input_event *out)
{
    const unsigned char *b = d->buffer;
    uint32_t ch;
    bool valid;
    size_t at = 1, need;

    if (b[0] != 0x1b) {
        if (b[0] < 0x80)
            return key(d, out, 1, b[0], 0);
        need = b[0] >= 0xf0 ? 4 : b[0] >= 0xe0 ? 3 : b[0] >= 0xc0 ? 2 : 1;
        if (d->used < need && !late)
            return -1;
        need = utf8_decode_strict((const char *)b, d->used, &ch, &valid);
        if (!valid) {
            consume(d, need);
            return 0;
        }
        return key(d, out, need, ch, 0);
    }
    if (d->used == 1)
        return late ? key(d, out, 1, 0x1b, 0) : -1;
    /* Esc Esc [ A: Alt and an arrow; Esc Esc: Esc twice */
    if (b[1] == 0x1b) {
        if (d->used == 2 && !late)
            return -1;
        if (d->used == 2 || (b[2] != '[' && b[2] != 'O'))
            return key(d, out, 1, 0x1b, 0);
        at = 2;
    }
    if (b[at] == '[' || b[at] == 'O') {
        if (at + 1 >= d->used && late && at == 1)
            return key(d, out, 2, b[at], KEY_ALT);
        if (b[at] == '[')
            return csi(d, at, at == 2 ? KEY_ALT : 0, out);
        if (at + 1 >= d->used)
            return -1;
        need = at + 1;
        if (b[need] >= '1' && b[need] <= '8') /* ESC O 2 P: with a modifier */
            need++;
        if (need >= d->used)
            return -1;
        if (letter_key(b[need]))
            return key(d, out, need + 1, letter_key(b[need]),
                       (need > at + 1 ? (unsigned)(b[need - 1] - '1') & 7 : 0) |
                           (at == 2 ? KEY_ALT : 0));
        consume(d, need + 1);
        return 0;
    }
    if ((need = string_sequence(b, d->used)) == SIZE_MAX)
        return -1;
    if (need) {
        consume(d, need);
        return 0;
    }
    if (b[1] < 0x80)
        return key(d, out, 2, b[1], KEY_ALT);
    return key(d, out, 1, 0x1b, 0);
}

int decode_next(struct decode *d, bool late, struct input_event *out)
{
    assert(out && d->used <= d->size);
    memset(out, 0, sizeof *out);
    while (d->used) {
        int rc = d->pasting ? paste_collect(d, out) : step(d, late, out);

        if (rc > 0)
            return 1;
        if (rc == 0 && d->pasting && d->used && d->buffer[0] == 0x1b)
            return 0; /* a partial end mark */
        if (rc < 0) {
            if (!late)
                return 0;
            /* an incomplete sequence that will not end */
            d->used = 0;
        }
    }
    return 0;
}
