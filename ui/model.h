/* The screen's state as plain data: the chat as blocks, the newest telemetry, a sample of the
 * system, settings, and the user's view. Fed with events, telemetry and samples, read by panels;
 * nothing here draws, waits or reads the clock. Owner and thread: the UI thread. Figures meant for
 * reading are updated twice a second (shown); moving parts (text, heat, histories) use the newest
 * values (live). */
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
#define UI_SETTLE_NS 500000000ull /* initial interval between updates of the figures */
#define UI_SAMPLE_NS 250000000ull /* histories grow four times a second */
#define UI_FADE_NS 150000000ull   /* one fading step of the newest token's highlight */
/* a letter within this time after one that a panel took: both were typed text */
#define UI_TAKEN_NS 1000000000ull
#define UI_SPIN_NS 100000000ull /* one step of the activity spinner */
/* fading steps: colours of the fade, then brighter heat colours */
#define UI_LIGHT (THEME_FADE + 1)

/* UI_THOUGHT: the model's thoughts before an answer, and UI_TOOL: the result of a tool it called,
 * both folded into one line. UI_VIEW: a rule before the first message in the model's context */
enum ui_block_kind {
    UI_USER,
    UI_ASSISTANT,
    UI_SYSTEM,
    UI_NOTICE,
    UI_TROUBLE,
    UI_OUTPUT,
    UI_THOUGHT,
    UI_TOOL,
    UI_VIEW
};

/* Lines of a block at some width; filled and used by ui/chatview.c. */
struct wrap_run {
    uint32_t offset, len; /* bytes of the block's text */
    uint16_t gap;         /* cells left free before it */
    uint8_t look;
    bool bar; /* followed by a bar, as between the columns of a table */
};
struct wrap_line {
    uint32_t first, n; /* runs */
    uint32_t offset;   /* in the source text, for anchors */
    uint16_t indent;
    uint8_t kind, bullet;
};
struct wrap {
    int width;   /* 0: not wrapped yet */
    size_t done; /* bytes wrapped for good */
    bool whole, in_code, mark_code;
    bool folded;                 /* each tool call is folded into one line */
    int language, mark_language; /* of the code; see ui/code_look.h */
    struct { /* the one being wrapped: width of each column in cells, and whether it is
              * right-aligned */
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

/* One block of the chat: a message, or lines printed by the program. */
struct ui_block {
    enum ui_block_kind kind;
    char *text;
    size_t len, size;
    bool open; /* text is still being appended */
    /* The status line of an answer. */
    char plan[80], adapters[160]; /* adapters: with their strengths; "": none */
    double seconds, tok_s;        /* wall clock; rate while computing */
    bool paced;                   /* seconds includes time spent pacing */
    int tokens;
    enum stop_reason stop; /* STOP_NONE while it runs */
    enum answer_part part; /* of the newest text of an answer */
    uint64_t first_token;  /* n_tokens after its first token; 0: its tokens are not known */
    int entry;             /* index in the conversation, from 1; 0: none */
    int which, of;         /* index among the variants at this entry, from 1; of < 2: no variants */
    char tool[128];        /* UI_TOOL: "read_file of files, 0.3 s" */
    struct wrap wrap;
};

struct ui_history {
    float values[UI_HISTORY];
    uint64_t count; /* newest at (count - 1) % UI_HISTORY */
};

struct ui_token {
    char text[32];
    int id;
    uint32_t at;       /* byte offset in its answer's text; 0 for thoughts */
    float probability; /* the model's own */
    float share;       /* of the draw, after temperature and cuts; 0: it was not drawn */
    int candidates;    /* left to draw from after the cuts */
    float forbidden;   /* the model's own probability of all tokens the grammar excluded there */
    uint32_t us;       /* computing time */
    bool has_experts;  /* its row in ui_model.token_experts is filled */
    uint64_t serial;   /* see struct token_event */
    struct logprobs_event likely; /* other likely tokens there; n 0: not known */
};

/* One sample of the machine; floats are NAN and counts UINT64_MAX where unknown. */
struct ui_system {
    bool valid;
    int n_cores;
    float core_use[UI_CORES], core_process_use[UI_CORES];
    float system_use, process_cores, mhz, temperature;
    float watts, battery_watts; /* of the processor; from the battery, on which the machine runs */
    uint64_t rss, rss_peak, memory_total, memory_available, swap_used;
};

/* Utilisation of a device that is not the CPU. */
struct ui_device {
    char name[UI_NAME];
    /* drawn in the second accent colour; CPU-type OpenCL devices too */
    bool is_gpu;
    float use;                     /* 0 .. 1, NAN: see why */
    float mhz, temperature, watts; /* NAN: unknown */
    char why[UI_NAME];             /* why use is not known */
};

/* What a remote server (--connect) reports. NAN: not reported. */
struct ui_server {
    bool on;
    bool whole; /* it reports everything: memory, devices, placement and experts are the server's */
    char host[64];
    double running, waiting;           /* requests */
    double decode_tok_s, prompt_tok_s; /* of all its clients */
    double kv, cached, accepted;       /* shares 0 .. 1 */
    double draft_length;               /* tokens of a pass with drafts */
    char why[80];                      /* why nothing is reported; "": something is */
    char waits[200]; /* the server is busy or lost, and waited for; "": it is not */
};

/* Whether everything but the chat is on a server that reports nothing of its engine. */
static inline bool ui_server_hides(const struct ui_server *s)
{
    return s->on && !s->whole;
}

struct ui_metrics {
    enum engine_state state;
    double decode_tok_s, prefill_tok_s; /* 0: none yet */
    double ttft_s;                      /* negative: none yet */
    double p50_ms, p95_ms, max_ms;      /* of the newest tokens; 0: none */
    int generated, prompt, cached;
    uint64_t session_generated;
};

/* Text search in the chat (ui/search.h). */
struct ui_search {
    enum { SEARCH_OFF, SEARCH_TYPING, SEARCH_WALKING } state;
    char text[128];
    int hits, at;  /* number of hits, and index of the shown one (from 0); -1: none */
    size_t block;  /* of the shown one */
    size_t offset; /* offset of it in the block's text */
};

/* What the colours of the newest answer's tokens show (ui/token_ink.h). */
enum token_ink {
    INK_OFF,
    INK_PROBABILITY,
    INK_SURPRISE,
    INK_TIME,
    INK_EXPERT,
    INK_ATTENTION,
    INK_MODES
};

/* HEAT_BESIDE: how two models' answers differ, where there are two. */
enum heat_mode { HEAT_ANSWER, HEAT_SESSION, HEAT_NOW, HEAT_BESIDE, HEAT_MODES };

/* Rows of the placement panel. */
#define UI_PLANS (TELEMETRY_PLANS + 8)
struct ui_plan_row {
    char name[64];
    int figures; /* index in live.plans, -1: not used yet */
    int key;     /* function key that selects it; 0: none */
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
    bool thoughts_open;        /* thoughts and tool calls are unfolded */
    /* engine */
    char sampling[48]; /* "temp 0.8 top-k 40": the sampling settings; "": unknown */
    char model_name[UI_NAME], model_type[24], kernels[24];
    bool ready, running, stopped;
    enum stop_reason last_stop; /* of the newest answer; STOP_NONE: none yet */
    bool loading;
    uint64_t progress_done, progress_total; /* loading: bytes; prefill: tokens */
    bool prefilling;
    uint64_t prefill_at, prefill_from; /* when prefill began, and at which token */
    double prefill_rate;               /* tokens a second since then; 0: not known yet */
    char waiting[256];                 /* first line of a queued message; empty: none */
    char note[160];                    /* replaces the hint below the input until note_until */
    uint64_t note_until;
    /* requested and not in effect yet ("prompt NAME": of prompts); empty: none */
    char wanted_plan[80];
    uint64_t wish; /* number of that request (event.wishes) */
    unsigned spin;
    uint64_t spin_at;
    double pace;            /* tokens a second, 0: unlimited */
    double bytes_per_token; /* weights read per token; 0: unknown */
    char memory_share[32];  /* "62 % of memory speed", "in cache"; "": unknown */
    struct telemetry live;  /* with arrays owned by the model, see n_cells */
    int n_cells;
    uint8_t *light;      /* per cell: remaining fading steps */
    uint64_t light_at;   /* time of the next fading step */
    uint64_t lit_tokens; /* recent_count of the highlighted token */
    struct ui_metrics shown;
    int cache_lost; /* tokens that were recomputed for the newest message; see /cache */
    struct ui_server server;
    const struct ui_serving *serving;   /* set on a server's dashboard; borrowed */
    const struct ui_training *training; /* set on a training run's; borrowed */
    struct ui_system system;
    struct ui_device devices[DEVICE_MAX];
    struct ui_history decode, prefill;
    struct ui_history use[DEVICE_MAX]; /* of the devices, 0 .. 1; the CPU's: this process */
    uint64_t now;                      /* of the last tick */
    uint64_t settle_ns;                /* interval between updates of the figures */
    uint64_t settle_at, sample_at, sample_tokens, sample_prefilled, sample_last;
    struct ui_token tokens[UI_TOKENS];
    struct logprobs_event likely; /* for the next token */
    uint64_t n_tokens;            /* ever; newest at (n - 1) % UI_TOKENS */
    unsigned token_lists;         /* number of times the list of tokens was restarted */
    /* n_tokens and the block's first_token of the newest answer computed, while it is removed from
     * the chat; 0: it is not, or its tokens are not kept any more */
    uint64_t aside, aside_first;
    uint16_t *token_experts; /* (UI_TOKENS, n_layers * used): expert by layer and slot */
    int token_width;
    /* the user's view */
    uint32_t open_panels; /* bit by index in panels[] */
    /* private state of each panel, by index: allocated by panels_init, freed with the model */
    void *panel_state[LAYOUT_PANELS];
    int focus, zoom; /* panel index, -1 */
    bool explain;    /* `?`: the focused panel explains its figures */
    int explain_top; /* first row of that shown */
    bool letters;    /* the focus was set by a key: letters go to the panel */
    /* letters the panel took in a row, and what they changed: they may be the start of a message */
    struct {
        char text[8];
        int n;
        uint64_t at, settle_ns;
        enum heat_mode heat;
    } taken;
    enum heat_mode heat;
    /* Of each cell: its share of its layer's choices in the first answer less that in the second;
     * (n_layers, n_experts), owned; NULL: nothing to compare. */
    float *beside;
    /* at the map's cursor: tokens show their experts of this layer */
    int cursor_layer, cursor_expert;
    bool expert_marked; /* the map is focused: that expert's tokens are marked in the text */
    enum token_ink ink;
    /* Of the newest answer's tokens from serial `first` on: how many times as much as evenly a head
     * looked at them; owned; NULL: nothing was asked */
    struct {
        float *times;
        size_t n;
        uint64_t first;
        char name[48];
    } attended;
    size_t inked_block; /* the block that the kept tokens belong to */
    uint64_t marked;    /* the token at the cursor of the tokens panel; 0: none */
    uint64_t asked;     /* a clicked token, which that panel scrolls to; 0: none */
    /* the last drawing showed a token's timeline: the engine traces a token now and then */
    bool timeline_shown;
    bool hints;   /* an empty chat shows the start page */
    int example;  /* index of its selected message */
    bool key_bar; /* a row of keys at the bottom, where there is room */
    struct ui_search search;
    /* returns the text of a token; NULL: not available */
    void (*token_text)(void *ctx, int id, char *out, size_t size);
    void *token_text_ctx;
    /* selected in the tokens panel: this id replaces the token that has so many newer ones; -1:
     * none */
    int instead_of, instead;
    bool lens;             /* the key for a lens was pressed at that token, instead_of */
    const char *help_text; /* lines of the help panel, owned by the caller */
    /* the newest answer computed was removed from the chat; until the next one starts */
    bool forgotten;
    bool dirty; /* something changed since the last frame */
};

int ui_model_init(struct ui_model *m); /* 0 or ERR_MEMORY */
void ui_model_release(struct ui_model *m);
/* Call when the model is loaded: sets the sizes of the heat map. */
int ui_model_ready(struct ui_model *m, int n_layers, int n_experts, int n_used);
/* Call when the engine is replaced: clears what was shown of it and keeps the chat. */
void ui_model_closing(struct ui_model *m);

/* Blocks. Text is copied; any bytes. NULL: no memory. The pointer is valid until the next add. */
struct ui_block *ui_block_add(struct ui_model *m, enum ui_block_kind kind, const char *text);
int ui_block_append(struct ui_model *m, struct ui_block *b, const char *text, size_t len);
void ui_block_truncate(struct ui_model *m, size_t n_blocks);
/* Adds the thoughts before the answer at index `answer` of the blocks, with their number of tokens
 * (0: unknown). */
struct ui_block *ui_block_thought(struct ui_model *m, size_t answer, const char *text, int tokens);
/* Sets the rule before the block of the conversation's entry (from 1), with a text that replaces
 * the ones above; there is at most one. entry 0, or an entry not shown: none. */
void ui_block_view(struct ui_model *m, int entry, const char *text);
/* the answer in progress, or NULL */
struct ui_block *ui_block_answer(struct ui_model *m);

/* Takes no ownership. now: CLOCK_MONOTONIC in nanoseconds, in all functions. */
void ui_model_event(struct ui_model *m, const struct event *ev, uint64_t now);
void ui_model_telemetry(struct ui_model *m, const struct telemetry *t, uint64_t now);
void ui_model_system(struct ui_model *m, const struct ui_system *s);
/* Call when the newest answer was removed from the chat (undone, or another chat was opened): its
 * figures are hidden. */
void ui_model_forget(struct ui_model *m);
/* Call when it is back, as `answer`, before another one was computed: restores its figures. False:
 * nothing was kept. */
bool ui_model_recall(struct ui_model *m, struct ui_block *answer);
/* A placement was requested, with number `wish`; it is marked until an event with event.wishes >=
 * wish reports the plan in effect. */
void ui_model_placing(struct ui_model *m, const char *plan, uint64_t wish, uint64_t now);
/* Advances time: updates figures and histories, fades highlights. */
void ui_model_tick(struct ui_model *m, uint64_t now);
/* Time of the next change of the picture by itself; UINT64_MAX: none. */
uint64_t ui_model_next(const struct ui_model *m);
void ui_model_note(struct ui_model *m, uint64_t now, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether the chat has a message of the user's. */
bool ui_model_asked(const struct ui_model *m);
/* Highlights the marked token's experts on the map. */
void ui_model_mark(struct ui_model *m, uint64_t serial);
/* What HEAT_BESIDE shows, (n_layers, n_experts), copied; NULL: nothing to compare any more. The
 * map turns to it when there was nothing before. */
void ui_model_beside(struct ui_model *m, const float *difference);
const char *ui_heat_word(const struct ui_model *m);
/* Next heat mode; a server's dashboard has no HEAT_ANSWER. */
void ui_heat_next(struct ui_model *m);
/* The device that ran an expert last, else that of the plan; 0: the CPU. */
int ui_cell_device(const struct ui_model *m, int layer, int expert);
/* "cpu", "gpu", and where there are several of these "gpu1", "gpu2" ... */
const char *ui_device_word(const struct ui_model *m, int device);
/* The plan of what is computed now: the prompts' while one is read, if they have their own. */
const char *ui_plan_now(const struct ui_model *m);
/* The plans that have keys, in key order, then other plans that were used, in order of use. */
int ui_plan_rows(const struct ui_model *m, struct ui_plan_row *out, int max);

#endif
