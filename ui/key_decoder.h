/* Decodes the bytes a terminal sends to keys, pastes and wheel turns. A small state machine without
 * a terminal or a clock: sequences may be split at any byte; a paste is one event however many
 * reads it took; an unknown sequence is dropped, never typed. Owner: the holder of the struct. */
#ifndef UI_KEY_DECODER_H
#define UI_KEY_DECODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEY_SHIFT = 1, KEY_ALT = 2, KEY_CTRL = 4 };

/* Characters are their code point (control characters included, 0x1b is the Esc key); the rest: */
enum {
    KEY_UP = 0x200000,
    KEY_DOWN,
    KEY_LEFT,
    KEY_RIGHT,
    KEY_HOME,
    KEY_END,
    KEY_PAGE_UP,
    KEY_PAGE_DOWN,
    KEY_INSERT,
    KEY_DELETE,
    KEY_BACKTAB,
    KEY_F1,
    KEY_F2,
    KEY_F3,
    KEY_F4,
    KEY_F5,
    KEY_F6,
    KEY_F7,
    KEY_F8,
    KEY_F9,
    KEY_F10,
    KEY_F11,
    KEY_F12,
};

enum input_kind { INPUT_KEY, INPUT_PASTE, INPUT_WHEEL, INPUT_CLICK };

struct input_event {
    enum input_kind kind;
    uint32_t key; /* INPUT_KEY */
    unsigned mods;
    /* the raw bytes: passed to readline if no one else handles the key */
    char bytes[32];
    int n_bytes;
    int x, y, amount; /* INPUT_WHEEL: cell and rows (up: negative); INPUT_CLICK: cell */
    char *paste;      /* INPUT_PASTE: valid until the next call; line ends are \n */
    size_t paste_len;
};

struct decode {
    unsigned char *buffer;
    size_t used, size;
    char *paste;
    size_t paste_used, paste_size;
    bool pasting, paste_return; /* in a paste; its newest byte was \r */
};

void decode_init(struct decode *d);
void decode_release(struct decode *d);
/* 0 or ERR_MEMORY (the bytes are dropped). */
int decode_push(struct decode *d, const void *bytes, size_t n);
/* 1: *out filled; 0: nothing complete. late: no byte arrived for a while, so a lone Esc is the Esc
 * key and an incomplete sequence is dropped. */
int decode_next(struct decode *d, bool late, struct input_event *out);
/* an incomplete sequence is pending (not a paste): call again with late */
bool decode_waiting(const struct decode *d);

#endif
