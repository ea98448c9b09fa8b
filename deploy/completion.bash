# Completion of sublet's command line for bash. What there is to complete is read off `sublet help`.

# The names in help's list: of commands, or with a command of its options ($2: "--").
_sublet_names() {
        sublet help $1 2>/dev/null | sed -n "s/^  \($2[a-z-]\{1,\}\).*/\1/p"
}

# What may follow the word $2 of the command $1: "swap overflow managed" after --memory.
_sublet_values() {
        sublet help "$1" 2>/dev/null | sed -n "s/.* $2 \([a-zA-Z]*|[a-zA-Z|]*\).*/\1/p" | tr '|' '\n' | grep '^[a-z]'
}

# Sets i to the word at which the program of `sublet run` begins; false where the cursor is not behind it.
_sublet_program() {
        for ((i = 2; i < COMP_CWORD; i++)); do
                case ${COMP_WORDS[i]} in
                --)
                        i=$((i + 1))
                        break
                        ;;
                = | --name | --priority | --memory | --keep | --freeze | --profile | --profile-file | --daemon) i=$((i + 1)) ;; # = stands alone here
                -*) ;;
                *) break ;;
                esac
        done
        [ "$i" -lt "$COMP_CWORD" ]
}

_sublet() {
        local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} i words
        COMPREPLY=()
        if [ "$COMP_CWORD" -eq 1 ] || [ "$command" = help ]; then
                words=$(_sublet_names "" "")
        elif [ "$command" = run ] && _sublet_program; then
                declare -F _command_offset >/dev/null && _command_offset "$i" # of bash-completion
                return
        elif [[ $cur == -* ]]; then
                words=$(_sublet_names "$command" --)
        elif [ "$before" = --daemon ]; then
                mapfile -t COMPREPLY < <(compgen -d -- "$cur")
                return
        elif [[ $before == --profile* ]]; then
                return # a file
        elif [ "$before" = set ]; then
                words="mode quantum"
        elif [ "$command" = pause ] || [ "$command" = resume ]; then
                words=$(sublet status 2>/dev/null | sed -n 's/^ *\([0-9]\{1,\}\)  .*/\1/p')
        else
                words=$(_sublet_values "$command" "$before")
                [ -n "$words" ] || [ "$command" != run ] || words=$(compgen -c -- "$cur")
        fi
        [ -z "$words" ] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -o default -F _sublet sublet
