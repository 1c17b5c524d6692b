/* --replay: what receipts say is derived again byte for byte, however it is computed; what was
 * tampered with, or is another model's, is found and named. The program itself is run. */
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static char out_path[4096], err_path[4096];

/* Runs moetop with these arguments, input in a file of the scratch folder; its exit status. */
static int run(const char *arguments)
{
    char command[16384];
    int status;

    snprintf(out_path, sizeof out_path, "%s/out", support_tmpdir());
    snprintf(err_path, sizeof err_path, "%s/err", support_tmpdir());
    snprintf(command, sizeof command, "cd '%s' && '%s' --cache-dir '%s' %s >out 2>err </dev/null",
             support_tmpdir(), support_program(), support_tmpdir(), arguments);
    status = system(command);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static char *text_of(const char *path)
{
    static const struct file_kind kind = {"file", 64 << 20, ERR_INPUT};
    struct error e = {0};
    char *text;
    size_t n;

    ck_assert_msg(file_read(path, &kind, &text, &n, &e) == 0, "%s", e.text);
    return text;
}

static void says(const char *path, const char *words)
{
    char *text = text_of(path);

    ck_assert_msg(strstr(text, words) != NULL, "'%s' is not in: %s", words, text);
    mem_free(text);
}

static const char *in_tmp(const char *name)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s", support_tmpdir(), name);
    return path;
}

static const char *const ways[] = {"-t 1", "-t 2 --parallel 4",
                                   "--kernels scalar -ub 7 --spec-type none",
                                   "--place layers:4 -t 2",
                                   "--spec-type eagle --parallel 2 -c 700"};
#define WAYS ((int)(sizeof ways / sizeof *ways))

START_TEST(an_answer_is_derived_again)
{
    static const char *const asked[] = {
        "-p 'Tell me about a fox.' -n 60 --temp 0",
        ("-p 'Tell me about a duck.' -n 80 --temp 0.9 --seed 18446744073709551614 --top-p "
         "0.123456789"),
        "-p 'Once upon a time' --raw -n 40 --temp 0.7 -sys ignored",
        "-sys 'Be short.' -p 'Tell me a story.' -n 60 --repeat-penalty 1.1 --stop the"};
    char arguments[1000];

    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        snprintf(arguments, sizeof arguments, "%s --stats-json stats.json -t 2", asked[i]);
        ck_assert_int_eq(run(arguments), 0);
        snprintf(arguments, sizeof arguments, "--replay stats.json %s", ways[_i]);
        if (run(arguments) != 0) {
            says(err_path, "no line");
            ck_abort();
        }
        says(out_path, "answer 1: the same, ");
    }
}
END_TEST

static const char lines[] =
    "Tell me about a fox.\n"
    "{\"id\": 7, \"messages\": [{\"role\": \"user\", \"content\": \"Tell me about a cow.\"}, "
    "{\"role\": \"assistant\", \"content\": \"A cow is big.\"}, {\"role\": \"user\", \"content\": "
    "\"Go on.\"}], \"temperature\": 0.8, \"seed\": 5, \"max_tokens\": 33}\n"
    "{\"prompt\": \"Yes or no?\", \"grammar\": \"root ::= \\\"yes\\\" | \\\"no\\\"\"}\n"
    "{\"prompt\": \"A small bird\", \"raw\": true, \"stop\": [\"and\"]}\n";

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(in_tmp(name), "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(a_batch_is_derived_again)
{
    char arguments[1000];

    write_text("lines", lines);
    ck_assert_int_eq(run("--batch lines --receipts --output answers --parallel 3 -n 50 --temp 0.6"),
                     0);
    snprintf(arguments, sizeof arguments, "--replay answers %s", ways[_i]);
    if (run(arguments) != 0) {
        says(err_path, "no line");
        ck_abort();
    }
    says(out_path, "answer 4: the same, ");
}
END_TEST

/* ---- chats ---- */

static int run_chat(const char *said)
{
    char command[16384];
    int status;

    write_text("said", said);
    snprintf(command, sizeof command,
             "cd '%s' && rm -f chat.json && '%s' --cache-dir '%s' -t 2 --seed 7 --pace off <said "
             ">out 2>err",
             support_tmpdir(), support_program(), support_tmpdir());
    status = system(command);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static const char talk[] =
    "/set seed 5\nTell me about a fox.\n/set temp 0.9\nTell me a story about "
    "it.\n/regen\n/set n-predict 3\nTell me more.\n/set n-predict -1\n"
    "/continue\n/system Be short.\nAnd a cow?\n/save ./chat.json\n/quit\n";

START_TEST(a_chat_is_derived_again)
{
    char arguments[1000];

    ck_assert_int_eq(run_chat(talk), 0);
    snprintf(arguments, sizeof arguments, "--replay chat.json %s", ways[_i]);
    if (run(arguments) != 0) {
        says(out_path, "no line");
        ck_abort();
    }
    says(out_path, "answer 2 (message 5, in a branch): the same, ");
    says(out_path, "answer 3 (message 5): the same, ");
    says(out_path, "answer 5 (message 7): the same, "); /* what was added to message 7 */
    says(out_path, "now makes another prompt");         /* /system came later */
    says(out_path, "answer 6 (message 9): the same, ");
}
END_TEST

START_TEST(what_a_chat_cannot_derive_is_said)
{
    ck_assert_int_eq(run_chat("Tell me about a fox.\n/experts-used 1\nAnd a cow?\n"
                              "/save ./chat.json\n/quit\n"),
                     0);
    ck_assert_int_eq(run("--replay chat.json"), 0);
    says(out_path, "answer 1 (message 2): the same, ");
    says(out_path, "answer 2 (message 4): cannot be derived again: a lossy setting was changed");
}
END_TEST

/* What was taken back is as it was at the start, the rows computed meanwhile included. */
START_TEST(what_a_chat_took_back_is_derived_again)
{
    ck_assert_int_eq(run_chat("Tell me about a fox.\n/experts-used 1\nAnd a cow?\n"
                              "/experts-used undo\nAnd a duck?\n/kv q8_0\nAnd a frog?\n"
                              "/kv undo\nAnd a hen?\n/save ./chat.json\n/quit\n"),
                     0);
    ck_assert_int_eq(run("--replay chat.json"), 0);
    says(out_path, "answer 2 (message 4): cannot be derived again: a lossy setting was changed");
    says(out_path, "answer 3 (message 6): the same, ");
    says(out_path, "answer 4 (message 8): cannot be derived again: a lossy setting was changed");
    says(out_path, "answer 5 (message 10): the same, ");
}
END_TEST

/* ---- tampering ---- */

static void change(const char *from, const char *to, void (*edit)(json_t *receipt))
{
    struct error e = {0};
    char *text = text_of(in_tmp(from)), *dumped;
    json_t *root = json_read(text, strlen(text), from, &e);

    ck_assert_msg(root != NULL, "%s", e.text);
    edit(json_object_get(root, "receipt"));
    dumped = json_dumps(root, 0);
    write_text(to, dumped);
    free(dumped);
    json_decref(root);
    mem_free(text);
}

static void other_token(json_t *r)
{
    json_array_set_new(json_object_get(r, "tokens"), 11, json_integer(17));
}

static void other_seed(json_t *r)
{
    json_object_set_new(json_object_get(r, "settings"), "seed", json_string("12"));
}

static void shorter(json_t *r)
{
    json_array_remove(json_object_get(r, "tokens"), 29);
}

static void other_text(json_t *r)
{
    json_object_set_new(r, "text_sha256", json_string("00"));
}

static void other_prompt(json_t *r)
{
    json_array_set_new(json_object_get(r, "prompt_tokens"), 3, json_integer(100));
}

static void other_model(json_t *r)
{
    json_object_set_new(r, "model_sha256", json_string("0123456789abcdef"));
}

static void no_tokens(json_t *r)
{
    json_object_del(r, "tokens");
}

static void no_setting(json_t *r)
{
    json_object_set_new(json_object_get(r, "settings"), "output", json_string("x"));
}

static void bad_setting(json_t *r)
{
    json_object_set_new(json_object_get(r, "settings"), "temp", json_string("warm"));
}

static void newer(json_t *r)
{
    json_object_set_new(r, "moetop_receipt", json_integer(2));
}

START_TEST(differences_are_named)
{
    static const struct {
        void (*edit)(json_t *receipt);
        int status;
        bool out; /* said on the standard output */
        const char *says;
    } all[] = {{other_token, 1, true, "answer 1: token 12 of the answer differs: 17 \""},
               {other_seed, 1, true, "of the answer differs"},
               {shorter, 1, true, "token 30 of the answer differs: the end then"},
               {other_text, 1, true, "the text is another one"},
               {other_prompt, 1, true, "token 4 of the prompt differs: 100 \""},
               {other_model, 3, false, "0123456789abcdef"},
               {no_tokens, 1, false, "lacks"},
               {no_setting, 1, false, "'output' is no setting of a receipt"},
               {bad_setting, 1, false, "warm"},
               {newer, 1, false, "another format"}};

    ck_assert_int_eq(
        run("-p 'Tell me a story.' -n 30 --ignore-eos --temp 1.5 --seed 3 --stats-json s.json"), 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        change("s.json", "t.json", all[i].edit);
        ck_assert_int_eq(run("--replay t.json"), all[i].status);
        says(all[i].out ? out_path : err_path, all[i].says);
    }
    ck_assert_int_eq(run("--replay nowhere.json"), 5);
    write_text("u.json", "{\"text\": 1}\n");
    ck_assert_int_eq(run("--replay u.json"), 1);
    says(err_path, "no receipt in it");
    write_text("u.json", "{\"text\": \n[");
    ck_assert_int_eq(run("--replay u.json"), 1);
}
END_TEST

/* Message `at` of the chat, and the first receipt of that. */
static json_t *message_of(json_t *chat, size_t at)
{
    return json_array_get(json_object_get(chat, "messages"), at);
}

static json_t *receipt_of(json_t *chat, size_t at)
{
    return json_array_get(json_object_get(message_of(chat, at), "receipts"), 0);
}

static void chat_token(json_t *chat)
{
    json_t *r = receipt_of(chat, 1);
    const char *rest = strchr(json_string_value(json_object_get(r, "tokens")), ' ');

    ck_assert_ptr_nonnull(rest);
    json_object_set_new(r, "tokens", json_sprintf("17%s", rest));
}

static void chat_text(json_t *chat)
{
    json_object_set_new(message_of(chat, 1), "content", json_string("A fox is a bird."));
}

static void chat_question(json_t *chat)
{
    json_object_set_new(message_of(chat, 0), "content", json_string("Tell me about a cow."));
}

static void chat_kept(json_t *chat)
{
    json_object_set_new(receipt_of(chat, 3), "prompt_kept", json_integer(4000));
}

static void chat_no_ids(json_t *chat)
{
    json_object_set_new(receipt_of(chat, 3), "prompt_tokens", json_string("1 two"));
}

static void chat_strange_id(json_t *chat)
{
    json_object_set_new(receipt_of(chat, 3), "prompt_tokens", json_string("1 2147483647"));
}

static void chat_no_list(json_t *chat)
{
    json_array_set_new(json_object_get(message_of(chat, 1), "receipts"), 0, json_integer(3));
}

static void chat_begun(json_t *chat)
{
    json_object_set_new(receipt_of(chat, 1), "begun", json_integer(-1));
}

static void chat_of_before(json_t *chat)
{
    json_object_del(message_of(chat, 1), "receipts");
    json_object_del(message_of(chat, 3), "receipts");
}

static void chat_model(json_t *chat)
{
    json_object_set_new(receipt_of(chat, 1), "model_sha256", json_string("0123456789abcdef"));
}

START_TEST(differences_of_a_chat_are_named)
{
    static const struct {
        void (*edit)(json_t *chat);
        int status;
        bool out;
        const char *says;
    } all[] = {{chat_token, 1, true, "answer 1 (message 2): token 1 of the answer differs"},
               {chat_text, 1, true, "what stands in the chat differs from byte 12 on"},
               {chat_question, 0, true, "now makes another prompt, from token "},
               {chat_kept, 1, false, "message 4: the receipt begins with 4000 tokens"},
               {chat_no_ids, 1, false, "no ids at 'two'"},
               {chat_strange_id, 1, false, "of the prompt is none of"},
               {chat_no_list, 1, false, "its receipt is no object"},
               {chat_begun, 1, true, "the same tokens, but the text is another one"},
               {chat_of_before, 1, false, "no receipt in it"},
               {chat_model, 3, false, "0123456789abcdef"}};
    struct error e = {0};
    json_t *chat;
    char *dumped;

    ck_assert_int_eq(run_chat("Tell me about a fox.\nAnd a cow?\n/save ./chat.json\n/quit\n"), 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *text = text_of(in_tmp("chat.json"));

        chat = json_read(text, strlen(text), "chat", &e);
        ck_assert_msg(chat != NULL, "%s", e.text);
        all[i].edit(chat);
        dumped = json_dumps(chat, 0);
        write_text("t.json", dumped);
        free(dumped);
        json_decref(chat);
        mem_free(text);
        ck_assert_int_eq(run("--replay t.json"), all[i].status);
        says(all[i].out ? out_path : err_path, all[i].says);
    }
    /* a chat of before is opened all the same */
    ck_assert_int_eq(run_chat("/load ./t.json\n/quit\n"), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("replay");
    TCase *t = tcase_create("replay");

    tcase_set_timeout(t, 240);
    tcase_add_loop_test(t, an_answer_is_derived_again, 0, WAYS);
    tcase_add_loop_test(t, a_batch_is_derived_again, 0, WAYS);
    tcase_add_loop_test(t, a_chat_is_derived_again, 0, WAYS);
    tcase_add_test(t, what_a_chat_cannot_derive_is_said);
    tcase_add_test(t, what_a_chat_took_back_is_derived_again);
    tcase_add_test(t, differences_are_named);
    tcase_add_test(t, differences_of_a_chat_are_named);
    suite_add_tcase(s, t);
    return support_run(s);
}
