# Completion of sublet's command line for fish. Words and their explanations come from `sublet help`.

function __sublet_commands
    sublet help 2>/dev/null | string replace -rf '^  ([a-z]+)  *(.*)' '$1\t$2'
end

# Prints the options of command $argv[1], one a line: "--name FORM", a tab, the explanation, which may stand below it.
function __sublet_options
    string replace -ra '\n {6,}' '  ' -- (sublet help $argv[1] 2>/dev/null | string collect) |
        string replace -rf '^  (--\S+(?: \S+)?)  +(.*)' '$1\t$2'
end

# Prints the numbers and the names of the programs that status shows; a name that is cut ends in "+".
function __sublet_programs
    sublet status 2>/dev/null | string replace -rf '^ *([0-9]+) +\S+ +(\S*[^\s+])  .*' '$1 $2' | string split ' '
end

# Prints the words that may stand at the cursor. False: the cursor is in the program of `sublet run` or `sublet submit`.
function __sublet_words
    set -l words (commandline -opc)
    set -l cursor (commandline -ct)
    set -l command $words[2]
    set -l options (__sublet_options $command)
    set -l before
    set -l program
    for word in $words[3..]
        if set -q before[1]
            set before
        else if string match -q -- '--' $word
            set program --
        else if set -q program[1]; or not string match -q -- '-*' $word
            set -a program $word
        else
            set before (string match -r -- "^$word ([^ \t]+)" $options)[2]
        end
    end
    if set -q before[1]
        switch $before
            case FILE DIR
                __fish_complete_path $cursor
            case 'PID*'
                __sublet_programs
            case '*|*'
                string match -r '^[a-z]+$' -- (string split '|' $before)
        end
        return
    end
    if contains -- "$command" run submit; and set -q program[1]
        return 1
    end
    if string match -q -- '-*' $cursor
        string replace -r '^(--[a-z-]+)[^\t]*' '$1' -- $options
        return
    end
    switch $command
        case run submit
            return 1
        case help
            __sublet_commands
        case set
            if not set -q program[1]
                set -l keys (sublet set 2>/dev/null | string split -f 1 ' ')
                set -q keys[1]; and string join \n $keys; or string join \n mode quantum
            else if test "$program" = mode
                string join \n auto exclusive off
            end
        case '*'
            string match -q '*PID*' -- (sublet help $command 2>/dev/null)[1]; and __sublet_programs
    end
    return 0
end

# Completes the program of `sublet run` or `sublet submit` like a command line of its own.
function __sublet_program
    set -l words (commandline -opc) (commandline -ct)
    set -l taking (__sublet_options $words[2] | string replace -rf '^(--\S+) .*' '$1')
    set -e words[1..2]
    while string match -q -- '-*' $words[1]; and set -q words[2]
        set -l word $words[1]
        set -e words[1]
        test "$word" = --; and break
        contains -- $word $taking; and set -e words[1]
    end
    complete -C "$words"
end

complete -c sublet -f
complete -c sublet -n __fish_use_subcommand -a '(__sublet_commands)'
complete -c sublet -n 'not __fish_use_subcommand' -a '(__sublet_words; or __sublet_program)'
