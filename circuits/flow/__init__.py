"""Information flow along a circuit: could it do what is asked of it? No weights are looked at.

- layout.py: Layout: what each role starts with
- circuit_flow.py: circuit_flow: what the paths carry
- fixed_paths.py: fixed_paths: along which roles fixed patterns lead
- flow_check.py: flow_check: is every loss component known where it is read?
- canonical_form.py: canonical_form: what a circuit does, whichever heads do it
"""
