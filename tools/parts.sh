# shellcheck shell=bash
# For scripts that run many parts, each with a log of its own: to be sourced.
#
#   out=DIR; . tools/parts.sh
#   part NAME COMMAND...          # the log is DIR/NAME.log; a line says how it ended
#   finish_parts                  # `N passed, N failed`; its status is 1 if any failed

passed=0
failed=()

part() {
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$out/$name.log" 2>&1; then
    echo "ok      $name ($((SECONDS - start)) s)"
    passed=$((passed + 1))
  else
    echo "FAILED  $name ($((SECONDS - start)) s): $out/$name.log, which ends"
    tail -n 25 "$out/$name.log" | cut -c1-300
    failed+=("$name")
  fi
}

finish_parts() {
  echo "$passed passed, ${#failed[@]} failed"
  [ ${#failed[@]} -eq 0 ]
}
