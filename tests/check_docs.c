/* The documents against the tables: committed pages are what the tables print, and they render
 * without complaint. */
#include "app/headless/documents.h"
#include "app/modes.h"
#include "engine/placement/planner.h"
#include "tests/support.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *read_all(const char *below_root)
{
    char path[4096], *text = NULL;
    size_t n = 0, got;
    char block[4096];
    FILE *out, *in;

    snprintf(path, sizeof path, "%s/%s", support_root(), below_root);
    in = fopen(path, "r");
    ck_assert_msg(in != NULL, "%s is missing", path);
    out = open_memstream(&text, &n);
    while ((got = fread(block, 1, sizeof block, in)) > 0)
        fwrite(block, 1, got, out);
    fclose(in);
    fclose(out);
    return text;
}

static void same(const char *committed, const char *printed)
{
    char *text = read_all(committed);
    size_t line = 1, at = 0;

    while (text[at] && text[at] == printed[at])
        line += text[at++] == '\n';
    ck_assert_msg(!text[at] && !printed[at],
                  "%s differs from the tables in line %zu: run `make docs` and commit the result",
                  committed, line);
    free(text);
}

START_TEST(manual_pages_are_printed_from_the_tables)
{
    static const char *const pages[] = {"man/moetop.1", "man/moetop.yaml.5"};
    char template[4096], *text = NULL;
    struct error e = {0};
    size_t n;
    FILE *f = open_memstream(&text, &n);

    snprintf(template, sizeof template, "%s/%s.in", support_root(), pages[_i]);
    ck_assert_msg(documents_man(template, f, &e) == 0, "%s", e.text);
    fclose(f);
    same(pages[_i], text);
    free(text);
}
END_TEST

START_TEST(default_configuration_is_printed_from_the_table)
{
    struct error e = {0};
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    ck_assert_int_eq(documents_default_config(f, &e), 0);
    fclose(f);
    same("configs/default.yaml", text);
    free(text);
}
END_TEST

START_TEST(manual_has_every_option_variable_key_and_exit_code)
{
    char *page = read_all("man/moetop.1"), *settings = read_all("man/moetop.yaml.5"), needle[160];

    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct option *o = &option_table[i];
        size_t at = (size_t)snprintf(needle, sizeof needle, "\\-\\-");

        for (const char *p = o->name; *p; p++)
            at += (size_t)snprintf(needle + at, sizeof needle - at, "%s%c", *p == '-' ? "\\" : "",
                                   *p);
        ck_assert_msg(strstr(page, needle), "--%s is not in moetop.1", o->name);
        ck_assert_msg(!(o->place & OPTION_FILE) || strstr(settings, needle + 4),
                      "%s is not in moetop.yaml.5", o->name);
        option_variable(o, needle, sizeof needle);
        ck_assert_msg(!(o->place & OPTION_FILE) || strstr(page, needle), "%s is not in moetop.1",
                      needle);
    }
#define X(name, exit_code, word, text)                       \
    snprintf(needle, sizeof needle, "\n.B %d\n", exit_code); \
    ck_assert_msg(strstr(page, needle), "exit status %d is not in moetop.1", exit_code);
    ERROR_TABLE(X)
#undef X
    free(page);
    free(settings);
}
END_TEST

START_TEST(unknown_markers_are_errors)
{
    char path[256];
    struct error e = {0};
    FILE *f, *null = fopen("/dev/null", "w");

    snprintf(path, sizeof path, "%s/page.in", support_tmpdir());
    f = fopen(path, "w");
    fputs("text\n@NOSUCH@\n", f);
    fclose(f);
    ck_assert_int_eq(documents_man(path, null, &e), ERR_USAGE);
    ck_assert_int_eq(documents_man("/no/such/page", null, &e), ERR_IO);
    fclose(null);
}
END_TEST

static const char *const pages[] = {"moetop.1",        "moetop.yaml.5",  "moetop-screen.7",
                                    "moetop-models.7", "moetop-serve.1", "moetop-placement.7",
                                    "moetop-train.1",  "moetop-bench.1", "moetop-numerics.7",
                                    "moetop-lab.7"};
#define PAGES (int)(sizeof pages / sizeof *pages)

/* Every page in man/ is one of these, and the main page leads to it. */
START_TEST(manual_pages_are_linked)
{
    char *main_page = read_all("man/moetop.1"), folder[4096], link[100];
    struct dirent *d;
    int n = 0;
    DIR *dir;

    snprintf(folder, sizeof folder, "%s/man", support_root());
    ck_assert_ptr_nonnull(dir = opendir(folder));
    while ((d = readdir(dir)))
        n += strlen(d->d_name) > 2 && strchr("157", d->d_name[strlen(d->d_name) - 1]) &&
             d->d_name[strlen(d->d_name) - 2] == '.';
    closedir(dir);
    ck_assert_int_eq(n, PAGES);
    for (int i = 1; i < PAGES; i++) {
        const char *dot = strrchr(pages[i], '.'), *dash = strchr(pages[i], '-');

        if (dash)
            snprintf(link, sizeof link, ".BR moetop\\-%.*s (%s)", (int)(dot - dash - 1), dash + 1,
                     dot + 1);
        else
            snprintf(link, sizeof link, ".BR %.*s (%s)", (int)(dot - pages[i]), pages[i], dot + 1);
        ck_assert_msg(strstr(main_page, link) != NULL, "man/moetop.1 does not name %s", pages[i]);
    }
    free(main_page);
}
END_TEST

/* groff has an opinion on every request; it must have none to voice. */
START_TEST(manual_pages_render_without_warnings)
{
    char command[5000];

    if (system("command -v groff >/dev/null 2>&1")) {
        support_skip("groff is not installed");
        return;
    }
    snprintf(command, sizeof command,
             "said=$(groff -t -man -ww -Kutf8 -Tutf8 '%s/man/%s' 2>&1 >/dev/null); echo \"$said\" "
             ">&2; test -z \"$said\"",
             support_root(), pages[_i]);
    ck_assert_msg(system(command) == 0, "groff complains about man/%s", pages[_i]);
}
END_TEST

START_TEST(completions_know_every_flag_and_parse)
{
    char path[256], command[512], flag[64], *text = NULL;
    size_t n;
    FILE *f;

    for (int shell = SHELL_BASH; shell <= SHELL_FISH; shell++) {
        f = open_memstream(&text, &n);
        documents_completion((enum documents_shell)shell, f);
        fclose(f);
        for (int i = 0; i < OPTION_COUNT; i++) {
            snprintf(flag, sizeof flag, shell == SHELL_FISH ? "-l %s" : "--%s",
                     option_table[i].name);
            ck_assert_msg(strstr(text, flag), "%s", flag);
        }
        if (shell == SHELL_BASH) {
            snprintf(path, sizeof path, "%s/moetop.bash", support_tmpdir());
            f = fopen(path, "w");
            fputs(text, f);
            fclose(f);
            /* what a user would get after `moetop --col` and after `moetop --color ` */
            snprintf(command, sizeof command,
                     "bash -c 'source %s; COMP_WORDS=(moetop --col); COMP_CWORD=1; _moetop; "
                     "[[ ${COMPREPLY[0]} == --color ]] || exit 1; COMP_WORDS=(moetop --color "
                     "\"\"); COMP_CWORD=2; _moetop; "
                     "[[ ${COMPREPLY[*]} == \"auto always never\" ]]'",
                     path);
            ck_assert_int_eq(system(command), 0);
        }
        free(text);
    }
}
END_TEST

static void completion_file(enum documents_shell shell, const char *name, char *path, size_t size)
{
    FILE *f;

    snprintf(path, size, "%s/%s", support_tmpdir(), name);
    f = fopen(path, "w");
    documents_completion(shell, f);
    fclose(f);
}

/* Lines as typed so far, and what Tab must offer among others: values from the tables of
 * strategies, themes, types and words. */
static const struct {
    const char *line, *offers;
} tabs[] = {
    {"moetop --place ", "balanced"},
    {"moetop --place ", "stripes"},
    {"moetop --place lay", "layers:"},
    {"moetop --place me", "memory:"},
    {"moetop --place mei", "meins"},
    {"moetop --place pla", "plan.yaml"},
    {"moetop --compare cpu,att", "cpu,attention-gpu"},
    {"moetop --theme ", "contrast"},
    {"moetop --kernels avx", "avxvnni"},
    {"moetop -ctk ", "q8_0"},
    {"moetop --bench -ctk f16,q", "f16,q8_0"},
    {"moetop --bench -o ", "jsonl"},
    {"moetop -o pla", "plan.yaml"},
    {"moetop --quantize ", "q4_k_m"},
    {"moetop --quantize q4_0 pla", "plan.yaml"},
    {"moetop --quantize q4_0 in pla", "plan.yaml"},
    {"moetop --device ", "opencl:0"},
    {"moetop --routing z", "zipf"},
    {"moetop --bench-compare pla", "plan.yaml"},
};

static bool offered(const char *command, const char *wanted)
{
    char line[4096];
    bool found = false;
    FILE *p = popen(command, "r");

    while (p && fgets(line, sizeof line, p)) {
        line[strcspn(line, "\t\n")] = 0;
        found |= strcmp(line, wanted) == 0;
    }
    return p && pclose(p) == 0 && found;
}

START_TEST(values_are_completed_from_the_tables)
{
    static const char *const shells[] = {[SHELL_BASH] = "bash", [SHELL_FISH] = "fish"};
    char path[256], own[300], command[1400];

    snprintf(command, sizeof command,
             "cd %s && mkdir -p moetop/placements && touch moetop/placements/meins.yaml plan.yaml",
             support_tmpdir());
    ck_assert_int_eq(system(command), 0);
    snprintf(own, sizeof own, "cd %s && XDG_CONFIG_HOME=$PWD", support_tmpdir());
    if (shells[_i]) {
        snprintf(command, sizeof command, "command -v %s >/dev/null", shells[_i]);
        if (system(command))
            return;
    }
    completion_file((enum documents_shell)_i, _i == SHELL_ZSH ? "_moetop" : "completion", path,
                    sizeof path);
    for (size_t k = 0; _i == SHELL_BASH && k < sizeof tabs / sizeof *tabs; k++) {
        snprintf(command, sizeof command,
                 "%s bash -c 'compopt() { :; }; source %s; read -ra COMP_WORDS <<<\"%s\"; [[ "
                 "\"%s\" == *\" \" ]] && COMP_WORDS+=(\"\"); "
                 "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _moetop; printf \"%%s\\n\" "
                 "\"${COMPREPLY[@]}\"'",
                 own, path, tabs[k].line, tabs[k].line);
        ck_assert_msg(offered(command, tabs[k].offers), "bash: '%s' does not offer %s",
                      tabs[k].line, tabs[k].offers);
    }
    for (size_t k = 0; _i == SHELL_FISH && k < sizeof tabs / sizeof *tabs; k++) {
        snprintf(command, sizeof command, "%s HOME=$PWD fish -c 'source %s; complete -C \"%s\"'",
                 own, path, tabs[k].line);
        ck_assert_msg(offered(command, tabs[k].offers), "fish: '%s' does not offer %s",
                      tabs[k].line, tabs[k].offers);
    }
    if (_i == SHELL_ZSH && system("command -v zsh >/dev/null") == 0) {
        snprintf(command, sizeof command, "zsh -n %s", path);
        ck_assert_int_eq(system(command), 0);
    }
}
END_TEST

/* Every option that takes one of some words, in every shell; and nothing of the tables is left out.
 */
START_TEST(completions_hold_every_word)
{
    for (int shell = SHELL_BASH; shell <= SHELL_FISH; shell++) {
        char *text = NULL, word[64];
        size_t n;
        FILE *f = open_memstream(&text, &n);

        documents_completion((enum documents_shell)shell, f);
        fclose(f);
        for (int i = 0; i < OPTION_COUNT; i++)
            for (int k = 0; option_table[i].type == OPTION_WORD &&
                            option_word(&option_table[i], k, word, sizeof word);
                 k++)
                ck_assert_msg(strstr(text, word), "%s of --%s", word, option_table[i].name);
        for (int i = 0; i < n_planners; i++) {
            snprintf(word, sizeof word, "%.*s", (int)strcspn(planners[i].syntax, "[:"),
                     planners[i].syntax);
            ck_assert_msg(strstr(text, word), "%s of --place", word);
        }
        free(text);
    }
}
END_TEST

START_TEST(every_mode_is_reached)
{
    static const struct {
        const char *mode;
        char *args[4];
    } ways[] = {{"help", {"--help"}},
                {"version", {"--version"}},
                {"print-config", {"--print-config"}},
                {"completion", {"--completion", "zsh"}},
                {"print-man", {"--print-man", "man/moetop.1.in"}},
                {"list-devices", {"--list-devices"}},
                {"doctor", {"--doctor"}},
                {"place-help", {"--place", "help"}},
                {"batch", {"--batch", "lines.jsonl"}},
                {"serve", {"--serve"}},
                {"tokenize", {"--tokenize"}},
                {"detokenize", {"--detokenize"}},
                {"print-prompt", {"--print-prompt", "-p", "Hi"}},
                {"fit", {"--fit"}},
                {"fit", {"--fit", "models"}},
                {"analyze", {"--analyze", "model.gguf"}},
                {"compare", {"--compare", "cpu,gpu"}},
                {"spec-sweep", {"--spec-sweep", "K=1..8"}},
                {"replay", {"--replay", "receipts.json"}},
                {"profile-experts", {"--profile-experts", "text.txt"}},
                {"paper-bundle", {"-p", "Hi", "--paper-bundle", "paper"}},
                {"routing-report", {"--routing-report", "trace.jsonl"}},
                {"suggest", {"--suggest", "profile.json"}},
                {"bench", {"--bench"}},
                {"bench", {"--microbench"}},
                {"make-control-vector", {"--make-control-vector", "a.txt", "b.txt"}},
                {"ablate", {"--ablate", "all", "--perplexity", "text.txt"}},
                {"perplexity", {"--perplexity", "text.txt"}},
                {"perplexity-lines", {"--perplexity-lines", "lines.jsonl"}},
                {"kl-divergence", {"--kl-divergence", "--kl-divergence-base", "base"}},
                {"price", {"--price", "all"}},
                {"choices", {"--choices", "questions.jsonl"}},
                {"one-shot", {"-p", "Hi"}},
                {"merge-lora", {"--merge-lora", "out.gguf"}},
                {"export-onnx", {"--export-onnx", "folder"}},
                {"finetune", {"--finetune", "data.jsonl", "--lora-out", "out"}},
                {"quantize", {"--quantize", "q8_0", "in.gguf", "out.gguf"}},
                {"embed", {"--embed", "texts.txt"}},
                {"fetch", {"-hf", "a/b", "--fetch"}},
                {"chat", {"--temp", "0"}}};
    static struct options o;
    struct error e;

    for (int i = 0; mode_at(i); i++) {
        int reached = 0;

        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
            char *argv[6] = {"moetop"};
            int argc = 1;

            if (strcmp(ways[k].mode, mode_at(i)->name) != 0)
                continue;
            while (argc < 5 && ways[k].args[argc - 1]) {
                argv[argc] = ways[k].args[argc - 1];
                argc++;
            }
            ck_assert_int_eq(options_init(&o, &e), 0);
            ck_assert_msg(options_parse(&o, argc, argv, &e) == 0, "%s: %s", ways[k].mode, e.text);
            ck_assert_str_eq(mode_choose(&o)->name, mode_at(i)->name);
            options_release(&o);
            reached++;
        }
        ck_assert_msg(reached > 0, "nothing here reaches %s", mode_at(i)->name);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("docs");
    TCase *t = tcase_create("docs");

    tcase_add_loop_test(t, manual_pages_are_printed_from_the_tables, 0, 2);
    tcase_add_test(t, default_configuration_is_printed_from_the_table);
    tcase_add_test(t, manual_has_every_option_variable_key_and_exit_code);
    tcase_add_test(t, unknown_markers_are_errors);
    tcase_add_test(t, manual_pages_are_linked);
    tcase_add_loop_test(t, manual_pages_render_without_warnings, 0, PAGES);
    tcase_add_test(t, completions_know_every_flag_and_parse);
    tcase_add_loop_test(t, values_are_completed_from_the_tables, SHELL_BASH, SHELL_FISH + 1);
    tcase_add_test(t, completions_hold_every_word);
    tcase_add_test(t, every_mode_is_reached);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
