/* The documents against the tables: committed pages are what the tables print, and they render without complaint. */
#include "app/documents.h"
#include "app/modes.h"
#include "tests/support.h"

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
    ck_assert_msg(!text[at] && !printed[at], "%s differs from the tables in line %zu: run `make docs` and commit the result", committed, line);
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
            at += (size_t)snprintf(needle + at, sizeof needle - at, "%s%c", *p == '-' ? "\\" : "", *p);
        ck_assert_msg(strstr(page, needle), "--%s is not in moetop.1", o->name);
        ck_assert_msg(!(o->place & OPTION_FILE) || strstr(settings, needle + 4), "%s is not in moetop.yaml.5", o->name);
        option_variable(o, needle, sizeof needle);
        ck_assert_msg(!(o->place & OPTION_FILE) || strstr(page, needle), "%s is not in moetop.1", needle);
    }
#define X(name, exit_code, word, text) \
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

/* groff has an opinion on every request; it must have none to voice. */
START_TEST(manual_pages_render_without_warnings)
{
    static const char *const pages[] = {"moetop.1", "moetop.yaml.5"};
    char command[5000];

    if (system("command -v groff >/dev/null 2>&1")) {
        printf("SKIPPED: groff is not installed\n");
        return;
    }
    snprintf(command, sizeof command, "said=$(groff -man -ww -Kutf8 -Tutf8 '%s/man/%s' 2>&1 >/dev/null); echo \"$said\" >&2; test -z \"$said\"",
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
            snprintf(flag, sizeof flag, shell == SHELL_FISH ? "-l %s" : "--%s", option_table[i].name);
            ck_assert_msg(strstr(text, flag), "%s", flag);
        }
        if (shell == SHELL_BASH) {
            snprintf(path, sizeof path, "%s/moetop.bash", support_tmpdir());
            f = fopen(path, "w");
            fputs(text, f);
            fclose(f);
            /* what a user would get after `moetop --col` and after `moetop --color ` */
            snprintf(command, sizeof command, "bash -c 'source %s; COMP_WORDS=(moetop --col); COMP_CWORD=1; _moetop; "
                     "[[ ${COMPREPLY[0]} == --color ]] || exit 1; COMP_WORDS=(moetop --color \"\"); COMP_CWORD=2; _moetop; "
                     "[[ ${COMPREPLY[*]} == \"auto always never\" ]]'", path);
            ck_assert_int_eq(system(command), 0);
        }
        free(text);
    }
}
END_TEST

START_TEST(every_mode_is_reached)
{
    static struct options o;
    struct error e;

    ck_assert_int_eq(options_init(&o, &e), 0);
    ck_assert_str_eq(mode_choose(&o)->name, "chat");
    o.help = true;
    ck_assert_str_eq(mode_choose(&o)->name, "help");
    options_release(&o);
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
    tcase_add_loop_test(t, manual_pages_render_without_warnings, 0, 2);
    tcase_add_test(t, completions_know_every_flag_and_parse);
    tcase_add_test(t, every_mode_is_reached);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
