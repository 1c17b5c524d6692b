/* Kinds of chat lines and the looks of their parts: set by ui/wrap.c, drawn by ui/chatview.c. */
#ifndef UI_LOOK_H
#define UI_LOOK_H

enum look { /* struct wrap_run .look */
            LOOK_TEXT,
            LOOK_BOLD,
            LOOK_ITALIC,
            LOOK_LINK,
            LOOK_CODE,
            LOOK_HEADING,
            LOOK_DIM,
            LOOK_KEYWORD, /* from here on: inside a block of code */
            LOOK_STRING,
            LOOK_COMMENT
};

enum line_kind { /* struct wrap_line .kind */
                 LINE_TEXT,
                 LINE_CODE,
                 LINE_FENCE,
                 LINE_QUOTE,
                 LINE_RULE, /* as wide as .indent says */
                 LINE_TODO,
                 LINE_DONE,
                 LINE_TABLE,
                 LINE_CALL,     /* of a tool, folded: all of it */
                 LINE_CALL_CUT, /* likewise, more than there is room for */
                 LINE_CALL_OPEN /* its name; the arguments stand below */
};

#endif
