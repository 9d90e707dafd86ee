/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Lists the rules, or holds one of them in this process. */
#include "rule.h"

#include <dlfcn.h>

extern const struct rule *const __start_rules[], *const __stop_rules[];

/* In the program that replaced one that had requests: see processes.c. */
int after_exec(char **arguments);

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "--list") == 0) {
        for (const struct rule *const *rule = __start_rules; rule < __stop_rules; rule++)
            printf("%d\t%s\t%s\t%s\t%s\n", (*rule)->line, (*rule)->kind == SHALL ? "shall" : "open", (*rule)->page,
                   (*rule)->name, (*rule)->text);
        return 0;
    }
    if (count == 2 && strcmp(arguments[1], "--provider") == 0) {
        Dl_info info;
        void *address = dlsym(RTLD_DEFAULT, "aio_read");
        HOLDS(dladdr(address, &info) != 0);
        printf("%s\n", info.dli_fname);
        return 0;
    }
    if (count >= 2 && strcmp(arguments[1], "--after-exec") == 0)
        return after_exec(arguments + 2);
    for (const struct rule *const *rule = __start_rules; count == 3 && rule < __stop_rules; rule++)
        if (strcmp(arguments[1], (*rule)->page) == 0 && strcmp(arguments[2], (*rule)->name) == 0) {
            (*rule)->hold();
            fflush(NULL);
            _exit(0);
        }
    fprintf(stderr, "a page and the name of one of its rules are wanted, or --list\n");
    return 2;
}
