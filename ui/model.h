/* What the screen shows, as plain data: the chat as blocks, the newest telemetry, a sample of the
 * system, settings, and what the user looks at. Events, telemetry and samples go in, panels read;
 * nothing here draws, waits or asks for the time. Owner and thread: the UI thread. Figures that
 * people read settle twice a second (shown); what moves (text, heat, histories) reads the newest
 * state (live). */
#ifndef UI_MODEL_H
#define UI_MODEL_H

#include "engine/base/error.h"
#include "engine/run/report/messages.h"
#include "engine/run/report/telemetry.h"
#include "ui/layout.h"
#include "ui/serving.h"
#include "ui/theme.h"
#include "ui/training.h"

#define UI_HISTORY 512
#define UI_TOKENS 512 /* newest tokens kept for the token view */
#define UI_CORES 256
#define UI_NAME 128
#define UI_SETTLE_NS 500000000ull /* figures change twice a second at first */
#define UI_SAMPLE_NS 250000000ull /* histories grow four times a second */
#define UI_FADE_NS 150000000ull   /* one step of the newest token's light */
/* a letter after a letter that a panel took: both were typed */
#define UI_TAKEN_NS 1000000000ull
#define UI_SPIN_NS 100000000ull /* a step of the mark that something is under way */
/* steps of it: colours of their own, then the heat's, brighter */
#define UI_LIGHT (THEME_FADE + 1)

/* UI_THOUGHT: what the model thought, before the answer it belongs to; folded into one line.
 * UI_VIEW: a rule, before the first message that the model sees */
enum ui_block_kind {
    UI_USER,
    UI_ASSISTANT,
    UI_SYSTEM,
    UI_NOTICE,
    UI_TROUBLE,
    UI_OUTPUT,
    UI_THOUGHT,
    UI_VIEW
};

/* Lines of a block at some width; filled and used by ui/chatview.c. */
struct wrap_run {
    uint32_t offset, len; /* bytes of the block's text */
    uint16_t gap;         /* cells left free before it */
    uint8_t look;
    bool bar; /* then a bar, as between the columns of a table */
};
struct wrap_line {
    uint32_t first, n; /* runs */
    uint32_t offset;   /* of the source, for anchors */
    uint16_t indent;
    uint8_t kind, bullet;
};
struct wrap {
    int width;   /* 0: never made */
    size_t done; /* bytes wrapped: up to here nothing changes any more */
    bool whole, in_code, mark_code;
    bool folded;                 /* calls of tools are a line each */
    int language, mark_language; /* of the code; see ui/code_look.h */
    struct { /* the one being wrapped: cells of each column, and whether it ends at the right */
        bool on;
        size_t from; /* its head */
        int columns;
        uint16_t width[16];
        bool right[16];
    } table;
    struct wrap_run *runs;
    struct wrap_line *lines;
    size_t n_runs, room_runs, n_lines, room_lines;
    size_t mark_runs, mark_lines; /* how many belong to the bytes before done */
};

/* One block of the chat: a message, or lines of the program. */
struct ui_block {
    enum ui_block_kind kind;
    char *text;
    size_t len, size;
    bool open; /* text still arrives */
    /* The line over an answer. */
    char plan[64], adapters[160]; /* adapters: with their strengths; "": none */
    double seconds, tok_s;        /* wall clock; rate of the computing */
    bool paced;                   /* seconds holds time that was only waited */
    int tokens;
    enum stop_reason stop; /* STOP_NONE while it runs */
    enum answer_part part; /* of the newest text of an answer */
    uint64_t first_token;  /* n_tokens when its first one had come; 0: they are not known */
    int entry;             /* of the conversation, from 1; 0: none */
    int which, of;         /* number of it among what was said there, from 1; of < 2: alone */
    struct wrap wrap;
};

struct ui_history {
    float values[UI_HISTORY];
    uint64_t count; /* newest at (count - 1) % UI_HISTORY */
};

struct ui_token {
    char text[32];
    int id;
    uint32_t at;       /* byte of its answer's text where its own begins; of what was thought: 0 */
    float probability; /* the model's own */
    float share;       /* of the draw, after temperature and cuts; 0: it was not drawn */
    int candidates;    /* left to draw from after the cuts */
    float forbidden;   /* the model's own probability of what a grammar kept out there */
    uint32_t us;       /* computing time */
    bool has_experts;  /* its row in ui_model.token_experts is filled */
    uint64_t serial;   /* see struct token_event */
    struct logprobs_event likely; /* what else was likely there; n 0: not known */
};

/* One sample of the machine; floats are NAN and counts UINT64_MAX where nothing is known. */
struct ui_system {
    bool valid;
    int n_cores;
    float core_use[UI_CORES], core_process_use[UI_CORES];
    float system_use, process_cores, mhz, temperature;
    uint64_t rss, rss_peak, memory_total, memory_available, swap_used;
};

/* Utilisation of a device that is not the CPU. */
struct ui_device {
    char name[UI_NAME];
    /* takes the second accent; a CPU-type OpenCL device does too: it is another device */
    bool is_gpu;
    float use;              /* 0 .. 1, NAN: see why */
    float mhz, temperature; /* NAN: unknown */
    char why[UI_NAME];      /* why use is not known */
};

/* The model is a server's (--connect): what it tells of itself. NAN: it does not. */
struct ui_server {
    bool on;
    bool whole; /* it tells all: memory, devices, placement and experts are its own */
    char host[64];
    double running, waiting, kv, decode_tok_s, cached; /* requests; shares 0 .. 1 */
    char why[80];                                      /* why nothing is told; "": something is */
};

struct ui_metrics {
    enum engine_state state;
    double decode_tok_s, prefill_tok_s; /* 0: none yet */
    double ttft_s;                      /* negative: none yet */
    double p50_ms, p95_ms, max_ms;      /* of the newest tokens; 0: none */
    int generated, prompt, cached;
    uint64_t session_generated;
};

/* Words looked for in the chat (ui/search.h). */
struct ui_search {
    enum { SEARCH_OFF, SEARCH_TYPING, SEARCH_WALKING } state;
    char text[128];
    int hits, at;  /* all of them, and which one is shown (from 0); -1: none */
    size_t block;  /* of the shown one */
    size_t offset; /* of it in the block's text */
};

/* What the ink of the newest answer's tokens tells (ui/token_ink.h). */
enum token_ink { INK_OFF, INK_PROBABILITY, INK_SURPRISE, INK_TIME, INK_EXPERT, INK_MODES };

enum heat_mode { HEAT_ANSWER, HEAT_SESSION, HEAT_NOW, HEAT_MODES };

/* What the placement panel lists. */
#define UI_PLANS (TELEMETRY_PLANS + 8)
struct ui_plan_row {
    char name[64];
    int figures; /* index in live.plans, -1: not used yet */
    int key;     /* function key that takes it; 0: none */
};

struct ui_model {
    struct theme theme;
    /* chat */
    struct ui_block *blocks;
    size_t n_blocks, room_blocks;
    int anchor_block; /* top line shown, -1: follow the newest */
    uint32_t anchor_offset;
    int chat_lines, chat_rows; /* of the last drawing: all lines, rows of the pane, */
    int chat_width;            /* and the width it was wrapped for */
    bool chat_below;           /* lines below the last row */
    bool thoughts_open;        /* thoughts and calls of tools are shown whole */
    /* engine */
    char sampling[48]; /* "temp 0.8 top-k 40": what is drawn with; "": not told */
    char model_name[UI_NAME], model_type[24], kernels[24];
    bool ready, running, stopped;
    enum stop_reason last_stop; /* of the newest answer; STOP_NONE: none yet */
    bool loading;
    uint64_t progress_done, progress_total; /* loading: bytes; prefill: tokens */
    bool prefilling;
    uint64_t prefill_at, prefill_from; /* when reading began, and with which token */
    double prefill_rate;               /* tokens a second since then; 0: not known yet */
    char waiting[256]; /* first line of a message that waits for its turn; empty: none */
    char note[160];    /* a line in place of the hint below the input, until note_until */
    uint64_t note_until;
    char wanted_plan[64]; /* asked for and not in force yet; empty: none */
    uint64_t wish;        /* its number */
    unsigned spin;
    uint64_t spin_at;
    double pace;            /* tokens a second, 0: runs free */
    double bytes_per_token; /* weights read for a token; 0: unknown */
    char memory_share[32];  /* "62 % of memory speed", "in cache"; "": unknown */
    struct telemetry live;  /* arrays of its own, see n_cells */
    int n_cells;
    uint8_t *light;      /* per cell: steps of light left */
    uint64_t light_at;   /* when the light steps next */
    uint64_t lit_tokens; /* recent_count of the token that is lit */
    struct ui_metrics shown;
    int cache_lost; /* tokens that the newest message computed again; see /cache */
    struct ui_server server;
    const struct ui_serving *serving;   /* this is a server's dashboard; not the model's own */
    const struct ui_training *training; /* likewise a training run's */
    struct ui_system system;
    struct ui_device devices[DEVICE_MAX];
    struct ui_history decode, prefill;
    struct ui_history use[DEVICE_MAX]; /* of the devices, 0 .. 1; the CPU's: this process */
    uint64_t now;       /* of the last tick */
    uint64_t settle_ns; /* between two changes of the figures */
    uint64_t settle_at, sample_at, sample_tokens, sample_prefilled, sample_last;
    struct ui_token tokens[UI_TOKENS];
    struct logprobs_event likely; /* of the token that comes next */
    uint64_t n_tokens;            /* ever; newest at (n - 1) % UI_TOKENS */
    unsigned token_lists;         /* how often the list of tokens began anew */
    /* n_tokens and the block's first_token of the newest answer computed, while it is not in the
     * chat; 0: it is, or its tokens are not kept any more */
    uint64_t aside, aside_first;
    uint16_t *token_experts;      /* (UI_TOKENS, n_layers * used): expert by layer and slot */
    int token_width;
    /* what the user looks at */
    uint32_t open_panels; /* bit by index in panels[] */
    /* each panel's own, by index: made by panels_init, freed with the model */
    void *panel_state[LAYOUT_PANELS];
    int focus, zoom; /* panel index, -1 */
    bool explain;    /* `?`: the focused panel explains its figures */
    int explain_top; /* first row of that shown */
    bool letters;    /* the focus was given by a key: letters are the panel's */
    /* letters it took in a row, and what they changed: they may have begun a sentence */
    struct {
        char text[8];
        int n;
        uint64_t at, settle_ns;
        enum heat_mode heat;
    } taken;
    enum heat_mode heat;
    /* under the map's cursor: the tokens' experts are those of this layer */
    int cursor_layer, cursor_expert;
    bool expert_marked; /* the map has the keys: that expert's tokens are marked in the text */
    enum token_ink ink;
    size_t inked_block; /* the block that the kept tokens belong to */
    uint64_t marked;    /* the token that the panel of tokens has its cursor on; 0: none */
    uint64_t asked;     /* a token that was clicked on, for that panel to go to; 0: none */
    /* the last drawing showed the timeline of a token: the engine is asked to trace one now and
     * then */
    bool timeline_shown;
    bool hints;   /* an empty chat shows the start page */
    int example;  /* of its messages, the marked one */
    bool key_bar; /* a row of keys at the bottom, where there is room */
    struct ui_search search;
    /* the text of a token, by whoever knows it; NULL: nobody */
    void (*token_text)(void *ctx, int id, char *out, size_t size);
    void *token_text_ctx;
    /* chosen in the panel of tokens: instead of the one with so many newer ones this id; -1: none
     */
    int instead_of, instead;
    const char *help_text; /* lines of the help panel, owned by the caller */
    /* the newest answer computed is not in the chat any more; until the next one begins */
    bool forgotten;
    bool dirty; /* something changed since the last frame */
};

int ui_model_init(struct ui_model *m); /* 0 or ERR_MEMORY */
void ui_model_release(struct ui_model *m);
/* The model is loaded: sizes of the heat map. */
int ui_model_ready(struct ui_model *m, int n_layers, int n_experts, int n_used);
/* The engine goes and another one is loaded: all that was shown of it is gone, the chat stays. */
void ui_model_closing(struct ui_model *m);

/* Blocks. Text is copied; any bytes. NULL: no memory. The pointer is valid until the next add. */
struct ui_block *ui_block_add(struct ui_model *m, enum ui_block_kind kind, const char *text);
int ui_block_append(struct ui_model *m, struct ui_block *b, const char *text, size_t len);
void ui_block_truncate(struct ui_model *m, size_t n_blocks);
/* What was thought before the answer at index `answer` of the blocks, tokens of it (0: unknown). */
struct ui_block *ui_block_thought(struct ui_model *m, size_t answer, const char *text, int tokens);
/* The rule before the block of the conversation's entry (from 1), with what stands for the ones
 * above; there is one at most. entry 0, or not shown: none. */
void ui_block_view(struct ui_model *m, int entry, const char *text);
/* the answer that is being written, or NULL */
struct ui_block *ui_block_answer(struct ui_model *m);

/* Takes no ownership. now: CLOCK_MONOTONIC in nanoseconds, as everywhere. */
void ui_model_event(struct ui_model *m, const struct event *ev, uint64_t now);
void ui_model_telemetry(struct ui_model *m, const struct telemetry *t, uint64_t now);
void ui_model_system(struct ui_model *m, const struct ui_system *s);
/* The newest answer is gone from the chat (taken back, another chat was read): nothing of it is
 * shown as this answer's. */
void ui_model_forget(struct ui_model *m);
/* It is back, as `answer`, before another one was computed: so is what was known of it. False:
 * nothing was kept. */
bool ui_model_recall(struct ui_model *m, struct ui_block *answer);
/* A placement was asked for, as wish number `wish`; it is marked until the engine says which one is
 * in force after it (event.wishes). */
void ui_model_placing(struct ui_model *m, const char *plan, uint64_t wish, uint64_t now);
/* Time passes: figures settle, histories grow, light fades. */
void ui_model_tick(struct ui_model *m, uint64_t now);
/* When the picture changes next by itself; UINT64_MAX: not. */
uint64_t ui_model_next(const struct ui_model *m);
void ui_model_note(struct ui_model *m, uint64_t now, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The experts of the marked token light up on the map. */
void ui_model_mark(struct ui_model *m, uint64_t serial);
const char *ui_heat_word(const struct ui_model *m);
/* The next mode; a server's dashboard has no answer of its own. */
void ui_heat_next(struct ui_model *m);
bool ui_cell_on_gpu(const struct ui_model *m, int layer, int expert);
/* Those at hand, in the order of their keys, then others that were used, in the order of use. */
int ui_plan_rows(const struct ui_model *m, struct ui_plan_row *out, int max);

#endif
