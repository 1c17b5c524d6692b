/* The file of a chat: the transcript, written anew after every turn, and beside it FILE.part, to
 * which the text of a running answer is appended as it comes, so that not even a kill loses what
 * was shown. The transcript's own format is in transcript.h; what is wrong is said by the caller.
 * Thread: the UI thread. */
#ifndef APP_CHAT_AUTOSAVE_H
#define APP_CHAT_AUTOSAVE_H

#include "app/common/transcript.h"

#include <limits.h>
#include <stdbool.h>

struct autosave {
    char path[PATH_MAX]; /* "": this chat is not kept */
    char part[PATH_MAX];
    int part_fd; /* -1: nothing was kept of the running answer */
    int lock_fd; /* the file is this program's alone (transcript_lock); -1: nobody's */
    size_t kept; /* bytes of the running answer that are in the part file */
    /* the file at path is this chat's: made by it, and by no other program of the same second */
    bool claimed;
    bool part_failed; /* the running answer cannot be kept; the next one tries again */
};

void autosave_init(struct autosave *f);
/* Fresh names in the state folder; the files of before stay as they are. Negative: f->path is ""
 * and nothing will be kept. */
int autosave_name(struct autosave *f, struct error *e);
/* From now on the chat is kept at path, which may be a saved one already. False: another program
 * writes that one; all is as before. */
bool autosave_take(struct autosave *f, const char *path);
/* Closes; with `done` the part is superfluous (the transcript was saved) and goes. */
void autosave_release(struct autosave *f, bool done);

/* Writes the transcript, if anything was said yet. 0 as well when this chat is not kept. ERR_IO,
 * ERR_MEMORY. */
int autosave_write(struct autosave *f, const struct transcript *t, struct error *e);
/* The same, and then the part is superfluous. */
int autosave_write_turn(struct autosave *f, const struct transcript *t, struct error *e);

/* An answer begins: its part will be written from its first byte on. */
void autosave_part_begin(struct autosave *f);
/* text[0..len) is the answer so far; what is not kept yet is written. ERR_IO once an answer: it is
 * not tried again before the next one. */
int autosave_part_write(struct autosave *f, const char *text, size_t len, struct error *e);
/* An answer that a kill cut short lies beside the transcript read from path: it becomes t's last
 * entry. */
void autosave_recover(struct transcript *t, const char *path);

#endif
