/* The file of a chat: the transcript, rewritten after every turn, and beside it FILE.part, to which
 * the text of a running answer is appended as it arrives, so that even a kill loses nothing that
 * was shown. The transcript's format is in transcript.h; the caller reports errors. Thread: the UI
 * thread. */
#ifndef APP_CHAT_AUTOSAVE_H
#define APP_CHAT_AUTOSAVE_H

#include "app/common/transcript.h"

#include <limits.h>
#include <stdbool.h>

struct autosave {
    char path[PATH_MAX]; /* "": this chat is not saved */
    char part[PATH_MAX];
    int part_fd; /* -1: nothing of the running answer is saved */
    int lock_fd; /* exclusive lock on the file (transcript_lock); -1: none */
    size_t kept; /* bytes of the running answer that are in the part file */
    /* the file at path belongs to this chat: created by it, not by another program in the same
     * second */
    bool claimed;
    bool part_failed; /* the running answer cannot be saved; the next one tries again */
};

void autosave_init(struct autosave *f);
/* Fresh names in the state folder; earlier files are not changed. Negative: f->path is "" and
 * nothing will be saved. */
int autosave_name(struct autosave *f, struct error *e);
/* From now on the chat is saved at path, which may exist. False: another program has that file
 * open; nothing is changed. */
bool autosave_take(struct autosave *f, const char *path);
/* Closes; `done`: the transcript was saved, so the part file is deleted. */
void autosave_release(struct autosave *f, bool done);

/* Writes the transcript; a chat without messages gets no file (a system message does not count). 0
 * also if this chat is not saved. ERR_IO, ERR_MEMORY. */
int autosave_write(struct autosave *f, const struct transcript *t, struct error *e);
/* The same, and then deletes the part file. */
int autosave_write_turn(struct autosave *f, const struct transcript *t, struct error *e);

/* An answer begins: its part file will be written from the first byte. */
void autosave_part_begin(struct autosave *f);
/* text[0..len) is the answer so far; appends what is not saved yet. ERR_IO once per answer: there
 * is no retry before the next one. */
int autosave_part_write(struct autosave *f, const char *text, size_t len, struct error *e);
/* Recovers the part file of an answer that was interrupted by a kill, beside the transcript read
 * from path: it becomes t's last entry. */
void autosave_recover(struct transcript *t, const char *path);

#endif
