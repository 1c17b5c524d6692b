/* The list of modes. */
#include "app/modes.h"

#include "app/analyze/analyze.h"
#include "app/bench/bench.h"
#include "app/placement/compare.h"
#include "app/chat/screen/screen.h"
#include "app/doctor/doctor.h"
#include "app/headless/batch.h"
#include "app/headless/documents.h"
#include "app/headless/embed.h"
#include "app/headless/export_onnx.h"
#include "app/headless/fetch_mode.h"
#include "app/headless/fit_mode.h"
#include "app/headless/list_devices.h"
#include "app/lab/paper_bundle.h"
#include "app/placement/report_mode.h"
#include "app/chat/screen/linemode.h"
#include "app/headless/oneshot.h"
#include "app/setup/resolve.h"
#include "app/placement/profile.h"
#include "app/headless/merge_lora.h"
#include "app/headless/quantize.h"
#include "app/headless/replay.h"
#include "app/headless/tokenize.h"
#include "app/quality/quality.h"
#include "app/serve/serve.h"
#include "app/speculate/sweep.h"
#include "app/train/train.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool help_wanted(const struct options *o)
{
    return o->help;
}
static bool version_wanted(const struct options *o)
{
    return o->version;
}
static bool print_config_wanted(const struct options *o)
{
    return o->print_config;
}
static bool completion_wanted(const struct options *o)
{
    return o->completion;
}
static bool print_man_wanted(const struct options *o)
{
    return o->print_man;
}
static bool place_help_wanted(const struct options *o)
{
    return o->place && strcmp(o->place, "help") == 0;
}
static bool list_devices_wanted(const struct options *o)
{
    return o->list_devices;
}
static bool batch_wanted(const struct options *o)
{
    return o->batch;
}
static bool print_prompt_wanted(const struct options *o)
{
    return o->print_prompt;
}
static bool replay_wanted(const struct options *o)
{
    return o->replay;
}
static bool tokenize_wanted(const struct options *o)
{
    return o->tokenize;
}
static bool detokenize_wanted(const struct options *o)
{
    return o->detokenize;
}
static bool bench_wanted(const struct options *o)
{
    return o->bench || o->microbench;
}
static bool compare_wanted(const struct options *o)
{
    return o->compare;
}
static bool sweep_wanted(const struct options *o)
{
    return o->spec_sweep;
}
static bool profile_wanted(const struct options *o)
{
    return o->profile_experts;
}
static bool suggest_wanted(const struct options *o)
{
    return o->suggest;
}
static bool always(const struct options *o)
{
    return true;
}

static int help_run(struct options *o, struct error *e)
{
    struct winsize w;
    int width = 80;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 60)
        width = w.ws_col < 120 ? w.ws_col : 120;
    documents_help(stdout, width);
    return 0;
}

static int version_run(struct options *o, struct error *e)
{
    printf("moetop %s\n", MOETOP_VERSION);
    return 0;
}

static int print_config_run(struct options *o, struct error *e)
{
    enum { NOW = 1 };

    if (o->print_config != NOW)
        return documents_default_config(stdout, e);
    documents_config(o, stdout);
    return 0;
}

static int completion_run(struct options *o, struct error *e)
{
    documents_completion((enum documents_shell)(o->completion - 1), stdout);
    return 0;
}

static int print_man_run(struct options *o, struct error *e)
{
    return documents_man(o->print_man, stdout, e);
}

/* On the screen if possible, else line by line. */
static int chat_any(struct options *o, struct error *e)
{
    int rc;

    if (linemode_wanted(o))
        return linemode_run(o, e);
    rc = chat_run(o, e);
    /* The terminal cannot address its cursor: nothing was displayed yet, so line mode is used. */
    return rc == ERR_USAGE ? linemode_run(o, e) : rc;
}

static const struct mode modes[] = {
    {"help", "print the options", help_wanted, help_run},
    {"version", "print the version", version_wanted, version_run},
    {"print-config", "print every setting and its origin", print_config_wanted, print_config_run},
    {"completion", "print a completion script", completion_wanted, completion_run},
    {"print-man", "print a manual page", print_man_wanted, print_man_run},
    {"list-devices", "list, test and measure the compute devices", list_devices_wanted,
     list_devices_run},
    {"doctor", "what of this machine to mend", doctor_wanted, doctor_run},
    {"fetch", "download a model", fetch_wanted, fetch_run},
    {"place-help", "list the placement strategies", place_help_wanted, place_help_run},
    {"print-prompt", "print the prompt as the model would get it", print_prompt_wanted,
     print_prompt_run},
    {"batch", "answer the lines of a file", batch_wanted, batch_run},
    {"embed", "embeddings of the lines of a file", embed_wanted, embed_run},
    {"replay", "derive answers again from their receipts", replay_wanted, replay_run},
    {"serve", "answer other programs over HTTP", serve_wanted, serve_run},
    {"tokenize", "print the ids of a text", tokenize_wanted, tokenize_run},
    {"detokenize", "print the text of ids", detokenize_wanted, detokenize_run},
    {"paper-bundle", "an answer and all that a paper says of it", paper_bundle_wanted,
     paper_bundle_run},
    {"routing-report", "figures of recorded routing", routing_report_wanted, routing_report_run},
    {"finetune", "train an adapter", train_wanted, train_run},
    {"fit", "what a model needs and what is free", fit_wanted, fit_run},
    {"analyze", "what a model is made of", analyze_wanted, analyze_run},
    {"compare", "compare placements", compare_wanted, compare_mode_run},
    {"spec-sweep", "measure drafts", sweep_wanted, sweep_mode_run},
    {"profile-experts", "count experts over a text", profile_wanted, profile_mode_run},
    {"suggest", "make a plan from a profile", suggest_wanted, suggest_mode_run},
    {"kl-divergence", "compare distributions with another setting's", divergence_wanted,
     divergence_run},
    {"price", "what lossy settings cost", price_wanted, price_run},
    {"make-control-vector", "write a steering vector", control_wanted, control_run},
    {"ablate", "what each expert is worth", ablate_wanted, ablate_run},
    {"perplexity", "how well a text is predicted", perplexity_wanted, perplexity_run},
    {"perplexity-lines", "how well lines are predicted", perplexity_lines_wanted,
     perplexity_lines_run},
    {"choices", "multiple choice", choices_wanted, choices_run},
    {"bench", "measure speed", bench_wanted, bench_mode_run},
    {"one-shot", "one answer on standard output", oneshot_wanted, oneshot_run},
    {"merge-lora", "write a model with its adapters in the weights", merge_lora_wanted,
     merge_lora_run},
    {"export-onnx", "write a model as ONNX", export_onnx_wanted, export_onnx_run},
    {"quantize", "write a model rounded to another type", quantize_wanted, quantize_run},
    {"chat", "the chat", always, chat_any},
};

const struct mode *mode_at(int i)
{
    return i >= 0 && (size_t)i < sizeof modes / sizeof *modes ? &modes[i] : NULL;
}

const struct mode *mode_choose(const struct options *o)
{
    const struct mode *m = modes;

    while (!m->wanted(o))
        m++;
    return m;
}

bool mode_connects(const struct mode *m)
{
    static int (*const those[])(struct options * o, struct error * e) = {
        help_run,      version_run,      print_config_run, completion_run,
        print_man_run, list_devices_run, place_help_run,   oneshot_run,
        chat_any,      bench_mode_run,   batch_run,
    };

    for (size_t i = 0; i < sizeof those / sizeof *those; i++)
        if (m->run == those[i])
            return true;
    return false;
}
